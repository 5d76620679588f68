//! What the words of `calls explain` mean, in Chinese: its sentences, with the facts, are English.

/// The word and what it means. The code of an error is none of them: the error has its own message in the language of its call.
const REASONS: [(&str, &str); 46] = [
    ("answered_from_the_cache", "结果来自缓存"),
    ("awaiting_approval", "等待有人同意后才会执行"),
    ("awaiting_client", "由调用方的程序执行，等待它交回结果"),
    ("awaiting_completion", "工具稍后给出结果，期间不占用 worker"),
    ("awaiting_input", "工具提出了问题，得到回答后继续"),
    ("cancel_requested", "正在执行，已要求它停止"),
    ("cancelled", "已取消"),
    ("circuit_open", "目标出错，熔断器已打开，暂不发送"),
    ("client_silent", "调用方的程序没有按时交回结果"),
    ("completion_silent", "工具答应稍后给出结果，但没有按时给出"),
    ("ended", "已结束"),
    ("follows", "等待一个相同调用的结果"),
    ("held", "在账本中排队，等待交给 worker"),
    ("in_doubt", "可能已执行，也可能没有"),
    ("in_doubt_client", "存疑：调用方的程序可能仍在执行"),
    ("in_doubt_completion", "存疑：工具已接收，但没有给出结果"),
    (
        "in_doubt_early",
        "存疑：它的尝试可能仍在进行，现在还不能断定没有执行",
    ),
    ("in_doubt_not_fenced", "存疑：尚未证明它的 worker 已经停止"),
    ("in_doubt_probing", "存疑：将由探查查明"),
    (
        "in_doubt_quarantined",
        "存疑：Postgres 丢失了写入，无法知道有过哪些尝试",
    ),
    ("missing_interceptor", "没有 worker 具备所需的拦截器"),
    ("missing_secret", "worker 缺少所需的密钥"),
    ("nats_away", "NATS 不可用"),
    ("no_consent", "缺少所需的同意"),
    ("no_free_slot", "worker 没有空位"),
    ("no_program_slot", "worker 没有运行程序的空位"),
    ("no_worker", "没有 worker 从它的队列取调用"),
    ("not_taken", "有空位，但没有 worker 取走它"),
    ("not_told", "工具提出的问题没有按时得到回答"),
    ("overdue", "已过截止时间，不会再执行"),
    ("overdue_attempt", "这次尝试应当已经结束"),
    ("paused", "已被暂停"),
    ("poison", "执行时多次失去 worker，已被搁置"),
    ("postponed", "被 worker 推迟"),
    ("published", "刚刚交给 NATS"),
    ("rate_limited", "等待工具的速率限制"),
    ("retry_wait", "等待下一次尝试"),
    ("running", "正在执行"),
    ("settled", "存疑已有定论"),
    ("settled_abandoned", "存疑已被放弃"),
    ("silent_worker", "worker 没有声音，可能已停止"),
    ("tenant_slots", "这个租户占用的空位已达到它的份额"),
    ("tool_limit", "等待工具的并发限制"),
    ("undecided", "没有人按时决定是否可以执行"),
    ("unknown_tool_version", "这个数据库中没有这个版本的工具"),
    ("worker_lost", "失去了它的 worker"),
];

/// Those that say of a call that is over for what it waited to its end.
const WAITED_FOR: [&str; 7] = [
    "circuit_open",
    "follows",
    "held",
    "no_worker",
    "paused",
    "rate_limited",
    "tool_limit",
];

/// What it means in Chinese, of a call that is over or is not.
pub(super) fn chinese(reason: &str, is_over: bool) -> Option<String> {
    let meaning = meaning(reason)?;
    let waited = is_over && WAITED_FOR.contains(&reason);
    Some(if waited {
        format!("直到结束时：{meaning}")
    } else {
        meaning.to_owned()
    })
}

fn meaning(reason: &str) -> Option<&'static str> {
    let at = REASONS
        .binary_search_by_key(&reason, |(word, _)| word)
        .ok()?;
    Some(REASONS[at].1)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use fleet::wire::code::Code;

    use super::*;

    #[test]
    fn the_words_are_in_their_order() {
        assert!(REASONS.is_sorted_by_key(|(word, _)| word));
    }

    /// The words in the sources of `explain`: the first argument of its `because`, the constants, and the words of what a worker lacks.
    fn words(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                words(&path, found);
                continue;
            }
            if path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            for before in [
                "because(",
                ": &str =",
                "Lack::Secret =>",
                "Lack::ProgramSlot =>",
                "Lack::Interceptor =>",
                "Lack::Consent =>",
            ] {
                for (_, behind) in source
                    .match_indices(before)
                    .map(|(at, _)| source.split_at(at + before.len()))
                {
                    let quoted = behind.trim_start().strip_prefix('"');
                    let word = quoted.and_then(|behind| behind.split('"').next());
                    let is_word = |word: &&str| {
                        word.bytes()
                            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                    };
                    found.extend(word.filter(is_word).map(ToOwned::to_owned));
                }
            }
        }
    }

    #[test]
    fn of_a_call_that_is_over_it_says_for_what_it_waited() {
        let told = |is_over| chinese("paused", is_over).unwrap();
        assert_eq!(
            (told(false), told(true)),
            ("已被暂停".to_owned(), "直到结束时：已被暂停".to_owned())
        );
    }

    #[test]
    fn every_reason_has_its_meaning() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fleet-history/src/explain");
        let mut found = Vec::new();
        words(&sources, &mut found);
        assert!(found.len() > 40, "{found:?}");
        let lacking: Vec<&String> = found
            .iter()
            .filter(|word| {
                meaning(word).is_none() && word.parse::<Code>().is_err() && *word != "client"
            })
            .collect();
        assert!(lacking.is_empty(), "{lacking:?}");
        let unused = REASONS
            .iter()
            .filter(|(word, _)| !found.iter().any(|found| found == word));
        assert_eq!(unused.collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());
    }
}
