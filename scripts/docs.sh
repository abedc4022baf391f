#!/bin/bash
# Checks the links of all pages, and makes a book of them: target/docs/book/index.html. Fetches
# mdBook the first time.
source "$(dirname "$0")/environment.sh"
export PHASES="packages rust links mdbook book"
VERSION=0.5.4
TARGET=${CARGO_TARGET_DIR:-target}
MDBOOK=$TARGET/tools/bin/mdbook

# The pages in the places that they have in the repository, so that their links hold in the book.
pages() {
    local src=$TARGET/docs/src page example
    rm -rf "$TARGET/docs" && mkdir -p "$src" &&
        cp docs/book.toml "$TARGET/docs/" && cp -r docs examples LICENSE LICENSES ./*.md "$src/" &&
        rm "$src/docs/book.toml" "$src/docs/SUMMARY.md" &&
        # What SUMMARY.md names is below docs/ there, and beside it here.
        sed -e 's#](#](docs/#' -e 's#](docs/\.\./#](#' docs/SUMMARY.md >"$src/SUMMARY.md" || return
    for page in $(grep -o '](.*)' "$src/SUMMARY.md" | tr -d '])('); do
        [[ -e $src/$page ]] || fail "docs/SUMMARY.md names $page, which is not there"
    done
    for example in $(cd examples && printf '%s\n' */ | tr -d / | sort --reverse); do
        example_page "$example" >"$src/examples/$example.md" &&
            sed -i "/(examples.README.md)/a \  - [$example](examples/$example.md)" "$src/SUMMARY.md" &&
            sed -i "s#]($example)#]($example.md)#" "$src/examples/README.md" || return
    done
    # mdBook makes index.html of a README.md, and toc.html of SUMMARY.md.
    find "$src" -name '*.md' ! -name SUMMARY.md -exec sed -i -e 's#README\.md)#index.md)#g' \
        -e 's#](examples/)#](examples/index.md)#g' -e 's#docs/SUMMARY\.md)#toc.html)#g' {} +
}

# example_page NAME: what the files of an example say.
example_page() {
    local file
    echo "# $1"
    find "examples/$1" -type f | sort | while read -r file; do
        printf '\n`%s`:\n\n```\n%s\n```\n' "${file#"examples/$1/"}" "$(<"$file")"
    done
}

install_mdbook() {
    # Unoptimised: it is compiled in half the time, and makes the book in a second or two.
    cargo install mdbook --version "$VERSION" --locked --no-default-features --features search \
        --debug --config profile.dev.debug=false --root "$TARGET/tools" --target-dir "$TARGET/tools/build"
}

need_packages
need_rust
phase links cargo test --quiet -p testudo-suite --test links
if [[ $("$MDBOOK" --version 2>/dev/null) == *"$VERSION" ]]; then
    phase_skip "mdbook: $VERSION is there"
else
    phase "mdbook: $VERSION, takes some minutes the first time" install_mdbook
fi
book() {
    pages && "$MDBOOK" build "$TARGET/docs"
}
phase book book
echo "docs: $TARGET/docs/book/index.html"
