//! The roles of sql tools: whether they keep the tools' statements from the ledger.

use fleet::{
    explain::Servers,
    store::{
        StoreError, server_check,
        session::Postgres,
        tool_role::{self, ToolRole},
    },
};

use super::{check::Check, postgres::Ledger};

const NAME: &str = "tool_role";

pub(super) async fn look(postgres: &Postgres, ledger: &Ledger) -> Vec<Check> {
    match roles(postgres, ledger).await {
        Ok(roles) => judge(&ledger.on_the_fleet, &roles),
        Err(problem) => vec![Check::error(NAME, problem, &Servers::default())],
    }
}

/// The roles that may end calls, and what is wrong with each.
async fn roles(
    postgres: &Postgres,
    ledger: &Ledger,
) -> Result<Vec<(String, Vec<server_check::Finding>)>, StoreError> {
    let mut connection = postgres.connect_to_look().await?;
    let mut roles = Vec::new();
    for name in tool_role::granted(&ledger.pool).await? {
        let found = if name == "PUBLIC" {
            vec![server_check::Finding {
                what: "every role may use schema toolfleet_tool".to_owned(),
                advice: "REVOKE ALL ON FUNCTION toolfleet_tool.succeed FROM PUBLIC".to_owned(),
            }]
        } else {
            ToolRole::look(&mut connection, &name).await?.findings()
        };
        roles.push((name, found));
    }
    Ok(roles)
}

/// `tools`: the tools that need such a role.
fn judge(tools: &[String], roles: &[(String, Vec<server_check::Finding>)]) -> Vec<Check> {
    let unfit = roles.iter().flat_map(|(_, found)| found);
    let unfit: Vec<Check> = unfit
        .map(|finding| Check::unfit(NAME, finding.what.clone(), finding.advice.clone()))
        .collect();
    if !unfit.is_empty() {
        return unfit;
    }
    let names: Vec<&str> = roles.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() && !tools.is_empty() {
        let found = format!(
            "no role may run tools with database: fleet, as {}",
            tools[0]
        );
        let advice = "CREATE ROLE toolfleet_tool LOGIN PASSWORD '…'; then toolfleet migrate --tool-role toolfleet_tool";
        return vec![Check::warn(NAME, found, advice)];
    }
    let found = if names.is_empty() {
        "none, and no tool needs one".to_owned()
    } else {
        format!("{}: kept from the ledger", names.join(", "))
    };
    vec![Check::ok(NAME, found)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check::Status;

    #[test]
    fn a_tool_without_a_role_and_a_role_that_reaches_too_far_are_found() {
        let status = |tools: &[&str], roles: &[(&str, bool)]| {
            let tools: Vec<String> = tools.iter().map(ToString::to_string).collect();
            let found = |fit: bool| {
                let finding = server_check::Finding {
                    what: "it reaches the ledger".to_owned(),
                    advice: "take that away".to_owned(),
                };
                if fit { Vec::new() } else { vec![finding] }
            };
            let roles: Vec<_> = roles
                .iter()
                .map(|(name, fit)| ((*name).to_owned(), found(*fit)))
                .collect();
            let checks = judge(&tools, &roles);
            checks.iter().map(|check| check.status).collect::<Vec<_>>()
        };
        assert_eq!(status(&[], &[]), [Status::Ok]);
        assert_eq!(status(&["transfer"], &[]), [Status::Warn]);
        assert_eq!(status(&["transfer"], &[("tools", true)]), [Status::Ok]);
        assert_eq!(
            status(&[], &[("tools", true), ("other", false)]),
            [Status::Fail]
        );
    }
}
