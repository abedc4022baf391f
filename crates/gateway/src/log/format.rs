//! How a line of the log looks: as text, as JSON, and with the priority that journald reads
//! (sd-daemon(3)).

use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `log.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// How lines look on this run's stderr.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) format: LogFormat,
    /// stderr is the journal: it takes the priority from each line, and the time is its own.
    pub(super) journal: bool,
    /// stderr is a terminal.
    pub(super) colour: bool,
}

/// The content of a line.
#[derive(Debug, Default)]
struct Record {
    message: String,
    /// The connection that it is about, as [`crate::gateway::Gateway::log`] names it.
    connection: Option<String>,
    /// Number of the IKE SA that it is about.
    ike_sa: Option<u64>,
    others: Vec<(&'static str, Value)>,
}

#[derive(Debug)]
enum Value {
    Text(String),
    /// A number or a truth value, which JSON writes as we do.
    Plain(String),
}

impl Style {
    /// The line that tells of lost lines.
    pub(super) fn loss(self, lost: u64) -> String {
        let message = format!("{lost} lines of the log are lost: the reader of stderr does not keep up");
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = self.line(&mut Writer::new(&mut line), Level::WARN, &Record { message, ..Record::default() });
        line
    }

    fn line(self, out: &mut Writer<'_>, level: Level, record: &Record) -> fmt::Result {
        if self.journal {
            write!(out, "<{}>", priority(level))?;
        }
        match self.format {
            LogFormat::Text => self.text(out, level, record),
            LogFormat::Json => json(out, level, record),
        }
    }

    fn text(self, out: &mut Writer<'_>, level: Level, record: &Record) -> fmt::Result {
        if !self.journal {
            SystemTime.format_time(out)?;
            out.write_char(' ')?;
        }
        match self.colour {
            true => write!(out, "\x1b[{}m{level:>5}\x1b[0m ", colour(level))?,
            false => write!(out, "{level:>5} ")?,
        }
        if record.connection.is_some() || record.ike_sa.is_some() {
            let (name, number) = (record.connection.as_deref().unwrap_or("-"), record.ike_sa.unwrap_or(0));
            write!(Escaping(&mut *out), "<{name}|{number}> ")?;
        }
        Escaping(&mut *out).write_str(&record.message)?;
        for (name, value) in &record.others {
            match value {
                Value::Text(text) => write!(Escaping(&mut *out), " {name}={text:?}")?,
                Value::Plain(text) => write!(out, " {name}={text}")?,
            }
        }
        out.write_char('\n')
    }
}

fn json(out: &mut Writer<'_>, level: Level, record: &Record) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    write!(out, "{{\"time\":{},\"level\":\"{level}\"", quoted(&time))?;
    if let Some(name) = &record.connection {
        write!(out, ",\"connection\":{}", quoted(name))?;
    }
    if let Some(number) = record.ike_sa {
        write!(out, ",\"ike_sa\":{number}")?;
    }
    write!(out, ",\"message\":{}", quoted(&record.message))?;
    for (name, value) in &record.others {
        match value {
            Value::Text(text) => write!(out, ",{}:{}", quoted(name), quoted(text))?,
            Value::Plain(text) => write!(out, ",{}:{text}", quoted(name))?,
        }
    }
    out.write_str("}\n")
}

/// A string of JSON.
fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Select Graphic Rendition (ECMA-48 §8.3.117).
fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    }
}

impl<S, N> FormatEvent<S, N> for Style
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut record = Record::default();
        event.record(&mut record);
        self.line(&mut out, *event.metadata().level(), &record)
    }
}

impl Record {
    fn plain(&mut self, field: &Field, value: String) {
        self.others.push((field.name(), Value::Plain(value)));
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push((name, Value::Text(format!("{value:?}")))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.to_owned(),
            "connection" => self.connection = Some(value.to_owned()),
            name => self.others.push((name, Value::Text(value.to_owned()))),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "ike_sa" => self.ike_sa = Some(value),
            _ => self.plain(field, value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value.to_string());
    }
}

/// Escapes what could drive a terminal, because text of peers gets into lines. Line feeds are
/// escaped too: the text behind one would look like a line of its own, without a priority.
struct Escaping<W>(W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.split_inclusive(drives_terminals) {
            let mut plain = piece.chars();
            match plain.next_back().filter(|last| drives_terminals(*last)) {
                Some(last) => write!(self.0, "{}{}", plain.as_str(), last.escape_default())?,
                None => self.0.write_str(piece)?,
            }
        }
        Ok(())
    }
}

fn drives_terminals(c: char) -> bool {
    c.is_control() && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::QueuedLine;
    use crate::log::queue::Queue;
    use std::io::Read;
    use tracing_subscriber::fmt::MakeWriter;

    const PLAIN: Style = Style { format: LogFormat::Text, journal: false, colour: false };

    /// Everything that `say` logs in this style.
    fn logged(style: Style, say: impl FnOnce()) -> String {
        struct To(&'static Queue);
        impl<'a> MakeWriter<'a> for To {
            type Writer = QueuedLine;
            fn make_writer(&'a self) -> QueuedLine {
                QueuedLine { queue: self.0, urgent: true }
            }
        }
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let queue: &'static Queue = Box::leak(Box::new(Queue::new(1 << 16, 1 << 12)));
        std::thread::spawn(move || queue.write_to(&mut writer, |lost| style.loss(lost)));
        let subscriber = tracing_subscriber::fmt()
            .event_format(style)
            .with_max_level(Level::TRACE)
            .with_writer(To(queue))
            .finish();
        tracing::subscriber::with_default(subscriber, say);
        assert!(queue.finish(std::time::Duration::from_secs(60)));
        let mut text = vec![0; 1 << 16];
        let len = reader.read(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    }

    fn one_of_each() {
        tracing::error!("broken");
        tracing::warn!(connection = Some("lab"), ike_sa = Some(3_u64), "no answer");
        tracing::info!(connection = Some("lab"), ike_sa = None::<u64>, "loaded");
        tracing::info!(connection = None::<&str>, ike_sa = None::<u64>, "nobody's");
        tracing::info!(mib = 40, on_huge_pages = true, name = "a \"b\"", "memory");
        tracing::debug!(why = %"x\ny", "said \u{1b}[2J\nWARN forged");
    }

    #[test]
    fn text_has_time_level_subject_message_and_fields() {
        let text = logged(PLAIN, one_of_each);
        let without_time: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once("Z ")?.1)).collect();
        assert_eq!(
            without_time,
            [
                "ERROR broken",
                " WARN <lab|3> no answer",
                " INFO <lab|0> loaded",
                " INFO nobody's",
                " INFO memory mib=40 on_huge_pages=true name=\"a \\\"b\\\"\"",
                "DEBUG said \\u{1b}[2J\\nWARN forged why=\"x\\ny\"",
            ]
        );
    }

    #[test]
    fn the_journal_gets_priorities_and_no_time() {
        let text = logged(Style { journal: true, ..PLAIN }, one_of_each);
        let begins: Vec<&str> = text.lines().map(|line| &line[..9]).collect();
        assert_eq!(begins, ["<3>ERROR ", "<4> WARN ", "<6> INFO ", "<6> INFO ", "<6> INFO ", "<7>DEBUG "]);
    }

    #[test]
    fn json_is_one_object_a_line_whatever_a_peer_says() {
        for journal in [false, true] {
            let text = logged(Style { format: LogFormat::Json, journal, colour: false }, one_of_each);
            let objects: Vec<serde_json::Value> = text
                .lines()
                .map(|line| if journal { &line[3..] } else { line })
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(objects.len(), 6, "{text}");
            assert_eq!((&objects[1]["level"], &objects[1]["connection"]), (&"WARN".into(), &"lab".into()));
            assert_eq!((&objects[1]["ike_sa"], &objects[1]["message"]), (&3.into(), &"no answer".into()));
            assert!(objects[3].get("connection").is_none() && objects[3].get("ike_sa").is_none(), "{text}");
            assert_eq!((&objects[4]["mib"], &objects[4]["on_huge_pages"]), (&40.into(), &true.into()));
            assert_eq!(objects[5]["message"], "said \u{1b}[2J\nWARN forged");
            assert!(objects.iter().all(|object| object["time"].as_str().unwrap().ends_with('Z')), "{text}");
        }
    }

    #[test]
    fn a_loss_is_told_in_the_style_of_the_log() {
        let line = Style { journal: true, ..PLAIN }.loss(7);
        assert_eq!(line, "<4> WARN 7 lines of the log are lost: the reader of stderr does not keep up\n");
        let object: serde_json::Value =
            serde_json::from_str(&Style { format: LogFormat::Json, ..PLAIN }.loss(7)).unwrap();
        assert_eq!(object["level"], "WARN");
    }
}
