# Sourced by environment.sh: shows a long step (apt, rustup, cargo) as one line and keeps what it
# prints in a log.
#
#   phase TITLE COMMAND [ARGUMENT...]
#       Runs COMMAND, a program or a function, without input, its output in LOG_DIR/NAME.log.
#       TITLE is the name, one word, and perhaps what is done: "packages: 61 to install".
#       Returns COMMAND's exit code. A function runs in a subshell and without "set -e": it checks
#       its own steps. It may call fail.
#   phase_skip TITLE
#       The line of a phase that has nothing to do.
#
# On a terminal, the line shows progress each second. Elsewhere (CI), a phase prints a line when it
# starts, one each 30 s, and one when it ends. A failure prints one line if its cause is known (no
# network, full disk, ...), otherwise the end of the log. Both name the log.
#
# What a script may set before:
#   PHASES          the names of all its phases in order, for the "[2/3] " in front; exported, so
#                   that scripts that it calls are counted too
#   PHASE_TAIL      how many lines of the log a failure shows (20)
#   PHASE_PROGRESS  a function that gets the path of the log and prints how far the phase is, in a
#                   few words (phase_progress, which knows cargo's and apt's logs)
#   PHASE_EXPLAIN   a function that gets a failed phase's name, the path of its log and the exit
#                   code, and prints why it failed (phase_explain; phase_show_end prints the end of
#                   the log and looks for no cause)

LOG_DIR=${CARGO_TARGET_DIR:-target}/log
REPORT_EACH=30

phase() {
    local title=$1 name=${1%%:*} started=$SECONDS status=0 log ticker pid
    # cargo says how far it is only to terminals, unless it is told to.
    local -x CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=80
    shift
    log=$LOG_DIR/$name.log
    if ! { mkdir -p "$LOG_DIR" && : >"$log"; } 2>/dev/null; then
        fail "cannot write $log: $(phase_unwritable "$LOG_DIR")"
    fi
    if phase_on_terminal; then
        phase_draw "$title ..."
    else
        echo "$(phase_number "$name")$title"
    fi
    # The ticker ends when the pipe to it closes, so also with this shell. COMMAND must not keep the
    # pipe open.
    exec {ticker}> >(phase_tick "$title" "$log")
    pid=$!
    ("$@") >"$log" 2>&1 </dev/null {ticker}>&- || status=$?
    exec {ticker}>&-
    wait "$pid" || true
    phase_strip_progress "$log"
    if ((status == 0)); then
        phase_end "$title" "done" "$((SECONDS - started))"
    else
        phase_end "$title" "failed" "$((SECONDS - started))"
        "${PHASE_EXPLAIN:-phase_explain}" "$name" "$log" "$status" >&2
    fi
    return "$status"
}

phase_skip() {
    echo "$(phase_number "${1%%:*}")$1"
}

phase_on_terminal() {
    [[ -t 1 && ${TERM:-dumb} != dumb ]]
}

# phase_number NAME: its place among PHASES, as "[2/3] ".
phase_number() {
    local name count=0 place=0
    for name in ${PHASES:-}; do
        ((++count))
        if [[ $name == "$1" ]]; then place=$count; fi
    done
    if ((place > 0)); then echo "[$place/$count] "; fi
}

# phase_draw TEXT: writes TEXT over the terminal's current line, cut so that it stays one line.
phase_draw() {
    local text width
    text=$(phase_number "${1%%:*}")$1
    read -r _ width < <(stty size <&1 2>/dev/null) || true
    ((${width:=0} > 0)) || width=80
    printf '\r\e[K%s' "${text:0:width-1}"
}

# phase_end TITLE RESULT SECONDS
phase_end() {
    local took
    took=$(phase_duration "$3")
    if phase_on_terminal; then
        phase_draw "$1 ... $2, $took"
        echo
    else
        echo "$(phase_number "${1%%:*}")${1%%:*}: $2, $took"
    fi
}

phase_duration() {
    if (($1 < 120)); then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

# phase_tick TITLE LOG: tells how far the phase is, until standard input ends.
phase_tick() {
    local title=$1 log=$2 started=$SECONDS next=$((SECONDS + REPORT_EACH)) progress elapsed
    # read fails with more than 128 after its timeout, with 1 at the end.
    while read -rt 1 _ || (($? > 128)); do
        if ! phase_on_terminal && ((SECONDS < next)); then continue; fi
        progress=$("${PHASE_PROGRESS:-phase_progress}" "$log" 2>/dev/null) || true
        elapsed=$(phase_duration "$((SECONDS - started))")${progress:+, $progress}
        if phase_on_terminal; then
            phase_draw "$title ... $elapsed"
        else
            echo "$(phase_number "${title%%:*}")${title%%:*}: $elapsed"
            next=$((SECONDS + REPORT_EACH))
        fi
    done
}

# phase_progress LOG: what the log of cargo or apt says last.
phase_progress() {
    local recent
    recent=$(tail -c 4000 "$1" | tr '\r' '\n')
    if [[ $recent =~ .*Building\ \[[^]]*\]\ ([0-9]+)/([0-9]+) ]]; then
        echo "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} compiled"
    elif [[ ${recent##*$'\n'} =~ ^Waiting\ for\ cache\ lock.*held\ by\ (process\ .*\)) ]]; then
        echo "waiting for ${BASH_REMATCH[1]}"
    else
        awk '/^[0-9]+ upgraded, [0-9]+ newly installed/ { all = $1 + $3 }
            /^Get:/ { fetched++ }
            /^Unpacking / { unpacked++ }
            /^Setting up / { set_up++ }
            END {
                if (all && unpacked >= all) printf "%d of %d set up", set_up, all
                else if (unpacked) printf "%d of %d unpacked", unpacked, all
                else if (fetched) printf "%d fetched", fetched
            }' "$1"
    fi
}

# phase_strip_progress LOG: removes cargo's progress bars, which overwrite each other on a terminal.
# On a full disk the log stays as it is.
phase_strip_progress() {
    sed --in-place 's/\r*$//; s/.*\r//; /^ *Building \[/d' "$1" 2>/dev/null || true
}

# phase_explain NAME LOG STATUS
phase_explain() {
    local cause
    cause=$(phase_cause "$2")
    if [[ -n $cause ]]; then
        echo "${0##*/}: $1 failed: $cause (log: $2)"
    else
        phase_show_end "$@"
    fi
}

# phase_show_end NAME LOG STATUS: what the log ends with, without cargo's list of crates.
phase_show_end() {
    grep -vE '^ +(Compiling|Checking|Fresh|Downloading|Downloaded|Updating|Locking|Adding|Blocking) ' "$2" |
        tail -n "${PHASE_TAIL:-20}" || true
    echo "${0##*/}: $1 failed with exit code $3, see above; all that it printed is in $2"
}

# phase_cause LOG: one line on what is wrong and what to do about it; nothing if it is not known.
phase_cause() {
    local log=$1 line
    # What a function of ours said by fail.
    if line=$(phase_find "^${0##*/}: .*" "$log"); then
        echo "${line#*: }"
    elif line=$(phase_disk_error "$log"); then
        echo "the disk is full (${line#E: }); make room and repeat"
    elif phase_find '^E: dpkg was interrupted' "$log" >/dev/null; then
        echo "an earlier run of dpkg was interrupted; run 'dpkg --configure -a' and repeat"
    elif phase_find '^E: (Could not get lock|Unable to acquire the dpkg)' "$log" >/dev/null; then
        line=$(phase_find 'held by process [0-9]+ .*\)' "$log") || true
        echo "another package manager is at work${line:+ (lock $line)}; wait until it is done and repeat"
    elif phase_find 'signal: 9, SIGKILL' "$log" >/dev/null; then
        echo "the compiler was killed, probably for lack of memory; repeat with CARGO_BUILD_JOBS=1"
    elif line=$(phase_network_error "$log"); then
        echo "cannot download (${line#[EW]: }); check the network and the proxy, and repeat"
    fi
}

# phase_find EXPRESSION LOG: the first match in the log, of which cargo's bars are no part.
phase_find() {
    grep -m 1 -oE "$1" <(tr '\r' '\n' <"$2" 2>/dev/null)
}

# phase_disk_error LOG: the first line by which a program says that a disk is full.
phase_disk_error() {
    # Not in a line of source that the compiler shows.
    if ! phase_find "^[^|]*(No space left on device|don't have enough free space in.*)" "$1"; then
        # The log may be on the full disk and lack the message.
        (($(free_megabytes "$LOG_DIR") < 1)) && echo "nothing is free at $LOG_DIR"
    fi
}

# phase_network_error LOG: the first line by which apt, cargo, rustup or curl says that it cannot
# reach its archive.
phase_network_error() {
    local apt='^[EW]: Failed to fetch .*' curl='curl: \([0-9]+\) .*'
    local rustup="could not download file from '[^']*'"
    local cargo='\[[0-9]+\] (Could|Couldn|Failed|Timeout|SSL|Send|Recv|HTTP).*|failed to download from .*'
    phase_find "$apt|$curl|$rustup|$cargo" "$1"
}

# phase_unwritable DIR: why nothing can be written below DIR.
phase_unwritable() {
    if (($(free_megabytes "$1") < 1)); then
        echo "the disk is full; make room, or set CARGO_TARGET_DIR to a directory on another disk"
    else
        echo "$(id -un) may not; run as the owner of $(existing_parent "$1"), or set CARGO_TARGET_DIR to a directory of your own"
    fi
}

# existing_parent PATH: the deepest directory above PATH, or PATH itself, that exists.
existing_parent() {
    local dir=$1
    while [[ ! -e $dir ]]; do dir=$(dirname "$dir"); done
    echo "$dir"
}

# free_megabytes PATH: what its file system has left.
free_megabytes() {
    df --output=avail --block-size=1M "$(existing_parent "$1")" | tail -n 1 | tr -d ' '
}
