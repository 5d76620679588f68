//! How the key of a call is hashed. A promise: later versions compare their hashes with stored ones.

use fleet::{
    ids::{IdempotencyKey, Label, ToolName},
    manifest::KeyPolicy,
};
use sha2::{Digest, Sha256};

/// Precedes a key that is derived from arguments. A caller's key is visible ASCII, so none begins with it.
const FROM_ARGUMENTS: u8 = 1;

/// The hash of a new call's key: its caller's, or the one that its tool derives from the arguments.
pub(crate) fn hash_for_call(
    tenant: &Label,
    tool: &ToolName,
    policy: KeyPolicy,
    key: Option<&IdempotencyKey>,
    args_hash: &[u8; 32],
) -> Option<[u8; 32]> {
    match (key, policy) {
        (Some(key), _) => Some(hash_of_callers(tenant, key)),
        (None, KeyPolicy::FromArguments) => Some(hash_of_arguments(tenant, tool, args_hash)),
        (None, KeyPolicy::Required | KeyPolicy::Optional) => None,
    }
}

/// SHA-256 of the tenant and the caller's key: the key itself is not stored.
pub(crate) fn hash_of_callers(tenant: &Label, key: &IdempotencyKey) -> [u8; 32] {
    Sha256::new()
        .chain_update(tenant.as_str())
        .chain_update([0])
        .chain_update(key.as_str())
        .finalize()
        .into()
}

/// The same for a key that is derived from the arguments. It does not contain the tool's version: a new version must not repeat
/// what an old one did.
fn hash_of_arguments(tenant: &Label, tool: &ToolName, args_hash: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update(tenant.as_str())
        .chain_update([0, FROM_ARGUMENTS])
        .chain_update(tool.as_str())
        .chain_update([0])
        .chain_update(args_hash)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn hash(tenant: &str, tool: &str, key: Option<&str>, args: u8) -> [u8; 32] {
        let key = key.map(|key| key.parse().unwrap());
        let (tenant, tool) = (tenant.parse().unwrap(), tool.parse().unwrap());
        let policy = KeyPolicy::FromArguments;
        hash_for_call(&tenant, &tool, policy, key.as_ref(), &[args; 32]).unwrap()
    }

    #[test]
    fn stored_hashes_stay_what_they_are() {
        assert_eq!(
            hex::encode(hash("acme", "charge", Some("order-1"), 7)),
            "af5f4f1841e88ebcae502028d51c062c1259dc625be203876e8e01dad4da9b32"
        );
        assert_eq!(
            hex::encode(hash("acme", "charge", None, 7)),
            "5708b5ee80a71bd8d830b249acf7a93c10f34328ac05f5adb03cee831b4604d2"
        );
    }

    #[test]
    fn tenant_tool_and_arguments_each_tell_keys_apart() {
        let hashes = BTreeSet::from([
            hash("acme", "charge", None, 7),
            hash("acme", "charge", None, 8),
            hash("acme", "refund", None, 7),
            hash("beta", "charge", None, 7),
            hash("acme", "charge", Some("charge"), 7),
        ]);
        assert_eq!(hashes.len(), 5);
    }

    #[test]
    fn a_callers_own_key_wins_whatever_the_tool_and_its_arguments() {
        let own = hash("acme", "charge", Some("k"), 7);
        assert_eq!(own, hash("acme", "refund", Some("k"), 8));
    }

    #[test]
    fn no_key_of_a_caller_begins_like_one_made_of_arguments() {
        let first = char::from(FROM_ARGUMENTS).to_string();
        assert!(first.parse::<IdempotencyKey>().is_err());
    }

    #[test]
    fn only_a_tool_that_says_so_makes_a_key_of_arguments() {
        let (tenant, tool) = ("acme".parse().unwrap(), "charge".parse().unwrap());
        for policy in [KeyPolicy::Required, KeyPolicy::Optional] {
            assert_eq!(hash_for_call(&tenant, &tool, policy, None, &[7; 32]), None);
        }
    }
}
