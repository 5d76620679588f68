//! How many open calls a tenant may have.

use std::{collections::HashMap, str::FromStr};

use fleet::ids::Label;

/// Tenants with a quota of their own: `acme=5000,beta=100`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantQuotas(HashMap<Label, u64>);

/// Why it is not a list of quotas.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadQuotas {
    /// Not `tenant=number`.
    #[error("write tenant=number, separated by commas, not {0:?}")]
    Form(String),
    /// Not the name of a tenant.
    #[error("{0:?} is not the name of a tenant")]
    Tenant(String),
    /// A tenant is listed twice.
    #[error("{0} has two quotas")]
    Twice(Label),
}

impl FromStr for TenantQuotas {
    type Err = BadQuotas;

    fn from_str(text: &str) -> Result<Self, BadQuotas> {
        let mut quotas = HashMap::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let form = || BadQuotas::Form(part.to_owned());
            let (tenant, quota) = part.split_once('=').ok_or_else(form)?;
            let tenant = tenant.trim();
            let quota = quota.trim().parse().map_err(|_not_a_number| form())?;
            let tenant: Label = tenant
                .parse()
                .map_err(|_bad_name| BadQuotas::Tenant(tenant.to_owned()))?;
            if quotas.insert(tenant.clone(), quota).is_some() {
                return Err(BadQuotas::Twice(tenant));
            }
        }
        Ok(Self(quotas))
    }
}

/// The quota of every tenant.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) default: u64,
    pub(crate) of: TenantQuotas,
}

impl Limits {
    /// `None`: no limit.
    pub(super) fn of(&self, tenant: &Label) -> Option<u64> {
        let quota = self.of.0.get(tenant).copied().unwrap_or(self.default);
        (quota > 0).then_some(quota)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_own_quota_or_the_one_of_all() {
        let of: TenantQuotas = "acme=5000, beta=1,free=0,".parse().unwrap();
        let limits = Limits { default: 7, of };
        let quota = |tenant: &str| limits.of(&tenant.parse().unwrap());
        assert_eq!(
            [quota("acme"), quota("beta"), quota("free"), quota("other")],
            [Some(5_000), Some(1), None, Some(7)]
        );
        assert_eq!("".parse(), Ok(TenantQuotas::default()));
    }

    #[test]
    fn what_is_no_list_of_quotas_is_refused_with_what_is_wrong() {
        let told = |text: &str| text.parse::<TenantQuotas>().unwrap_err().to_string();
        for bad in ["acme", "acme=", "acme=many", "acme=-1", "acme=1=2"] {
            assert!(told(bad).contains("tenant=number"), "{bad}");
        }
        assert_eq!(told("a.b=1"), "\"a.b\" is not the name of a tenant");
        assert_eq!(told("a=1,a=2"), "a has two quotas");
    }
}
