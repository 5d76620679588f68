//! `toolfleet control limit`.

use std::{process::ExitCode, str::FromStr, time::Duration};

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::LimitName,
    manifest::parse_duration,
    store::{
        DecisionError,
        controls::{self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl},
    },
};
use fleet_history::{
    Row,
    controls::{self as view, ListedControl, is_shared, limit_of},
    instant,
};
use serde_json::{json, value::RawValue};

use super::{answered, scope};
use crate::commands::{actor::user_at_host, connect, output, plain::plain, tools::bell, words};

/// What `control limit` is told.
#[derive(Debug, clap::Args)]
pub struct LimitStarts {
    /// The limit: the name of a tool with a `rate_limit` of its own, or the one that tools share
    name: LimitName,
    /// How many attempts may start in which time, such as 100/1s; or auto, for what the manifest says, which of a shared limit
    /// is nothing: then none of its tools starts
    rate: Rate,
    /// How many may start at once after a time without any, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 1)]
    burst: u32,
    /// How long, such as 10m or 24h, at most 720h, and then what held before, which of a shared limit may be nothing; without it,
    /// until it is set anew
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    lasts: Option<Duration>,
    /// Why, for who asks later; callers are never told
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the log will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with the result and the control
    #[arg(long)]
    json: bool,
}

/// So many in so much time, or what the manifest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rate {
    Of(u32, Duration),
    Auto,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let Some((calls, per)) = text.split_once('/') else {
            return Err("write a number, / and a time, such as 100/1s, or auto".to_owned());
        };
        let calls = calls.parse();
        let calls = calls
            .map_err(|_no_number| "write a whole number before the /, such as 100/1s".to_owned())?;
        Ok(Self::Of(calls, parse_duration(per)?))
    }
}

impl LimitStarts {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let scope = ControlScope {
            subject: Some(self.name.as_str()),
            ..ControlScope::default()
        };
        let mut note = String::new();
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let (word, row) = match self.rate {
            Rate::Of(calls, per) => {
                let setting = json!({"calls": calls, "per_ms": millis(per), "burst": self.burst});
                let control = NewControl {
                    kind: ControlKind::Limit,
                    scope,
                    setting: &setting.to_string(),
                    told: None,
                    actor: &self.actor,
                    note: &self.note,
                    for_ms: self.lasts.map(millis),
                    in_tenant: None,
                };
                let before = self.before().await?;
                let asked = controls::replace(&mut connection, &control).await;
                if matches!(asked, Err(DecisionError::Invalid(_))) {
                    self.is_there().await?;
                }
                note = self.besides(&before).await?;
                match answered(asked)? {
                    ControlSet::Set(row) => ("set", row),
                    ControlSet::Changed(row) => ("changed", row),
                    ControlSet::Already(row) => ("already_set", row),
                    ControlSet::Conflict(_row) => {
                        bail!("somebody has just set it otherwise; ask again")
                    }
                }
            }
            Rate::Auto => {
                let unset = Unset {
                    which: WhichControl::Scope(ControlKind::Limit, scope),
                    actor: &self.actor,
                    note: &self.note,
                    in_tenant: None,
                };
                match answered(controls::unset(&mut connection, &unset).await)? {
                    Some(row) => ("unset", row),
                    // As `control breaker TOOL auto` says it: what is asked for is so.
                    None => {
                        self.is_there().await?;
                        ("not_found", "null".to_owned())
                    }
                }
            }
        };
        if matches!(word, "set" | "changed" | "unset") {
            bell::ring(&self.bus).await;
        }
        if self.json {
            let control: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": word, "control": control}))?;
        } else if word == "not_found" {
            output::print(&format!("the limit {} was not set by a control", self.name))?;
        } else {
            let there: ListedControl = Row::from(row).read()?;
            output::print(&self.sentence(&there, word, &note))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a name that no limit has, with the one that the tool of this name shares.
    async fn is_there(&self) -> anyhow::Result<()> {
        let pool = connect::reader(&self.store).await?;
        let name = &self.name;
        if is_shared(&pool, name.as_str()).await?.is_some() {
            return Ok(());
        }
        let shared = limit_of(&pool, name.as_str()).await?;
        let hint = shared.map(|shared| {
            format!("; the tool {name} shares the limit {shared}: `toolfleet control limit {shared} CALLS/TIME --note WHY`")
        });
        bail!(
            "there is no limit {name}: it must be that of a tool with a rate_limit of its own, or one that tools share{}",
            hint.unwrap_or_default()
        )
    }

    /// The controls of this limit, before it is set.
    async fn before(&self) -> anyhow::Result<Vec<ListedControl>> {
        let pool = connect::reader(&self.store).await?;
        let mut before: Vec<ListedControl> = Row::read_all(&view::controls(&pool).await?)?;
        before.retain(|control| {
            control.scope.kind == ControlKind::Limit.as_str()
                && control.scope.subject.as_deref() == Some(self.name.as_str())
        });
        Ok(before)
    }

    /// What it does besides: with an end, what holds after it; without one, which others it ends.
    async fn besides(&self, before: &[ListedControl]) -> anyhow::Result<String> {
        if self.lasts.is_none() {
            let ended = before.iter().find(|control| control.expires_at.is_some());
            return Ok(ended.map_or_else(String::new, |ended| {
                format!(
                    ", and ends limit {}, {} until {}, by {}: {}",
                    ended.control_id,
                    scope::setting(&ended.scope),
                    ended.expires_at.map_or_else(String::new, instant),
                    plain(&ended.actor),
                    plain(&ended.note)
                )
            }));
        }
        if before.iter().any(|control| control.expires_at.is_none()) {
            return Ok(", and then what held before".to_owned());
        }
        let pool = connect::reader(&self.store).await?;
        Ok(match is_shared(&pool, self.name.as_str()).await? {
            Some(true) => format!(
                ", and then it has no numbers, and none of its tools starts any call: set some without an end, \
                 `toolfleet control limit {} CALLS/TIME --note WHY`",
                self.name
            ),
            Some(false) | None => ", and then what the manifest says".to_owned(),
        })
    }

    fn sentence(&self, control: &ListedControl, word: &str, besides: &str) -> String {
        let (id, name) = (control.control_id, &self.name);
        if word == "unset" {
            return format!(
                "limit {id} of {name} is over: what the newest manifests say holds at once; a shared limit has no numbers then, and \
                 none of its tools starts"
            );
        }
        let had = match word {
            "set" => "is set",
            "changed" => "is changed",
            _already => "was set before",
        };
        let until = control
            .expires_at
            .map_or_else(String::new, |until| format!(", until {}", instant(until)));
        format!(
            "limit {id} of {name} {had}: {} over the whole fleet{until}{besides}; the next claim keeps to it",
            scope::setting(&control.scope)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_in_a_time_or_what_the_manifest_says() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("100/1s"), Ok(Rate::Of(100, Duration::from_secs(1))));
        assert_eq!(rate("5/24h"), Ok(Rate::Of(5, Duration::from_secs(86_400))));
        assert_eq!(rate("auto"), Ok(Rate::Auto));
        for wrong in [
            "", "100", "/1s", "1.5/1s", "-1/1s", "100/s", "100/1", "100/1s/2", "AUTO",
        ] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
