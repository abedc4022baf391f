//! Questions to the operator on the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

/// Why there is no question.
pub(crate) const IMPOSSIBLE: &str = "standard input is no terminal, so it cannot be confirmed: use --yes";

/// True if an operator can answer.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal()
}

/// Asks the operator. True if the answer is yes.
pub(crate) fn ask(question: &str) -> io::Result<bool> {
    agreed(question, io::stdin().lock(), io::stderr().lock())
}

fn agreed(question: &str, mut answers: impl BufRead, mut to: impl Write) -> io::Result<bool> {
    write!(to, "{question}")?;
    to.flush()?;
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    let answer = answer.trim();
    Ok(answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_yes_is_one() {
        for (said, expected) in [
            ("y\n", true),
            ("Y\n", true),
            (" yes \n", true),
            ("\n", false),
            ("n\n", false),
            ("yup\n", false),
            ("", false),
        ] {
            let mut shown = Vec::new();
            assert_eq!(agreed("go on? ", said.as_bytes(), &mut shown).unwrap(), expected, "{said:?}");
            assert_eq!(shown, b"go on? ");
        }
    }
}
