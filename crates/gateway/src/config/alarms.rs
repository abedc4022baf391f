//! `[alarms]`

use crate::reader::{ConfigError, Section};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testudo_alarms::{Kind, Rules, Severity};
use testudo_vici::trust;

/// The most sightings a second that a threshold may be.
const MAX_THRESHOLD: u64 = 1_000_000;
/// The longest time for which a source may be dropped, in seconds: a day.
const MAX_DROP_TIME: u64 = 24 * 60 * 60;

/// The rules of the watch; `None`: there is none.
pub(super) fn parse(root: &Section<'_>) -> Result<Option<Rules>, ConfigError> {
    let mut rules = Rules::default();
    let Some(alarms) = root.section("alarms")? else { return Ok(Some(rules)) };
    let is_on = alarms.boolean("enabled")?.unwrap_or(true);
    let run = program(&alarms)?;
    let prefix = |text: &str| text.parse().ok();
    rules.never_drop = alarms.strings("never_drop", "an address or a subnet", prefix)?.unwrap_or_default();
    for kind in Kind::ALL {
        let Some(rule) = rules.of_mut(kind) else { continue };
        rule.run.clone_from(&run);
        let Some(section) = alarms.section(kind.name())? else { continue };
        let severity = |text: &str| match text {
            "off" => Some(None),
            name => Severity::from_name(name).map(Some),
        };
        let severities = "\"off\", \"notice\", \"warning\" or \"critical\"";
        if let Some(severity) = section.string("severity", severities, severity)? {
            rule.severity = severity;
        }
        if let Some(threshold) = section.integer("threshold", 1, MAX_THRESHOLD)? {
            rule.threshold = threshold;
        }
        if let Some(run) = program(&section)? {
            rule.run = Some(run);
        }
        if let Some(seconds) = section.integer("drop_source", 1, MAX_DROP_TIME)? {
            if !kind.names_sources() {
                return Err(
                    section.unfit("drop_source", format!("no such key: {kind} names no sources to drop"))
                );
            }
            rule.drop_source = Some(Duration::from_secs(seconds));
        }
        section.finish()?;
    }
    alarms.finish()?;
    Ok(is_on.then_some(rules))
}

fn program(section: &Section<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let expected = "the absolute path of a program that belongs to root and that nobody else can change";
    let program = |text: &str| Some(PathBuf::from(text)).filter(|path| trust::check(Path::new(path)).is_ok());
    section.string("run", expected, program)
}
