//! The words of all pages, in both languages. One table: a page has no word of its own.

use fleet::call::Language;

/// A word or sentence: English, Chinese.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) &'static str, pub(super) &'static str);

impl Word {
    /// In this language.
    pub(super) const fn told(self, language: Language) -> &'static str {
        match language {
            Language::En => self.0,
            Language::Zh => self.1,
        }
    }
}

macro_rules! words {
    ($($name:ident: $english:literal, $chinese:literal;)*) => {
        $(pub(super) const $name: Word = Word($english, $chinese);)*

        #[cfg(test)]
        const ALL: &[(&str, Word)] = &[$((stringify!($name), $name)),*];
    };
}

words! {
    // The frame.
    SKIP: "Skip to the page", "跳到正文";
    LIVE: "Live", "实时";
    DOUBTS: "In doubt", "存疑";
    WAITING: "Waiting", "等待中";
    TOOLS: "Tools", "工具";
    WORKERS: "Workers", "Worker";
    PROTECTION: "Protection", "保护";
    STREAMS: "Streams", "事件流";
    PAGES: "Pages", "页面";
    SEARCH: "Call id, TOOL KEY, session, run or trace id", "调用 id、TOOL KEY、会话、run 或 trace id";
    FIND: "Find", "查找";
    TENANT: "Tenant", "租户";
    SHOW: "Show", "显示";
    SIGN_IN: "Sign in", "登录";
    SIGN_OUT: "Sign out", "退出";
    TOKEN: "Token", "Token";
    TOKEN_HINT: "A token of this fleet: toolfleet tokens create. The page shows what it may see, and offers what it may do.", "本 fleet 的 token：toolfleet tokens create。页面只显示它可以看到的内容，只提供它可以执行的操作。";
    OTHER_LANGUAGE: "中文", "English";
    EVERYBODY: "everybody", "所有人";
    GO_ON: "Signed in already? Go on", "已经登录？继续";
    SIGNS_IN_AS: "This link signs in once, as", "这个链接登录一次，身份为";
    LINK_IS_OVER: "This link has signed somebody in already, or its time is over. Sign in with a token.", "这个链接已被使用或已过期。请用 token 登录。";
    PLAIN_HTTP: "Over plain HTTP a browser keeps the sign-in only for a loopback address.", "使用明文 HTTP 时，浏览器只为本机回环地址保留登录。";
    NATS_AWAY: "NATS is away: nothing can be called, settled or decided from here; what is shown comes from Postgres and is current.", "NATS 不可用：目前无法调用、裁定或批准；显示的内容来自 Postgres，仍然是最新的。";
    POSTGRES_AWAY: "Postgres is away: what calls did cannot be shown; workers and dispatchers go on as soon as it is back.", "Postgres 不可用：无法显示调用情况；恢复后 worker 和 dispatcher 会自动继续。";
    LOST: "The connection is lost; trying again.", "连接已断开，正在重试。";
    NEW: "# new", "# 条新记录";
    COPIED: "Copied.", "已复制。";
    PAUSE: "Stop the flow", "暂停刷新";
    RESUME: "Let it flow", "继续刷新";
    KEYS: "Keys", "键盘";
    KEY_SEARCH: "search", "搜索";
    KEY_ROWS: "next row, row before; Enter opens it", "下一行、上一行；回车打开";
    KEY_FAILED: "failed only", "仅失败";
    KEY_PAUSE: "stop the flow", "暂停刷新";
    KEY_GO: "then l, d, w, t, o, p, s: a page", "再按 l、d、w、t、o、p、s：打开页面";
    KEY_HELP: "this list", "显示此列表";
    CLOSE: "Close", "关闭";
    PROBLEM: "This page cannot be shown", "无法显示此页面";
    NOT_DONE: "Not done", "未执行";
    STATE: "State", "状态";
    QUEUED: "queued", "排队";
    HELD: "held", "暂留";
    RUNNING: "running", "运行中";
    AWAITING: "waiting", "等待中";
    IN_DOUBT: "in doubt", "存疑";
    SUCCEEDED: "succeeded", "成功";
    FAILED: "failed", "失败";
    CANCELLED: "cancelled", "已取消";
    EXPIRED: "expired", "已过期";
    SUCCESS: "success", "成功";
    BUSINESS_ERROR: "business error", "业务错误";
    FALLBACK: "fallback", "后备";
    SYSTEM_ERROR: "system error", "系统错误";
    OPEN: "open", "进行中";
    WORKER_LIVE: "live", "存活";
    WORKER_DRAINING: "draining", "正在退出";
    WORKER_DEAD: "dead", "失联";
    WORKER_LEFT: "left", "已离开";
    WORKER_FENCED: "fenced", "已证实终止";
    BREAKER_OPEN: "open", "已熔断";
    BREAKER_HALF_OPEN: "half open", "试探中";
    BREAKER_CLOSED: "closed", "正常";
    MINUTES: "The last ten minutes, by outcome", "最近十分钟，按结果";
    MINUTES_HINT: "Calls by the minute they came in, of the newest 1000 of each minute.", "按到达的分钟统计，每分钟只看最新的 1000 个调用。";
    MINUTE: "Minute", "分钟";
    CALLS: "Calls", "调用";
    WHEN: "When", "时间";
    TOOL: "Tool", "工具";
    ARGUMENTS: "Arguments", "参数";
    ATTEMPT: "Attempt", "尝试";
    TOOK: "Took, or age", "用时或已过时间";
    WORKER: "Worker", "Worker";
    ANY: "any", "任意";
    SESSION: "Session", "会话";
    RUN: "Run", "运行";
    TEXT: "Text in arguments or result", "参数或结果中的文本";
    SINCE: "Since (RFC 3339)", "起始时间（RFC 3339）";
    FILTER: "Filter", "筛选";
    FAILED_ONLY: "Failed only", "仅失败";
    ALL_CALLS: "All calls", "全部调用";
    NO_CALLS: "No calls here. Without a time the last 24 hours are looked at.", "没有调用。未指定时间时查看最近 24 小时。";
    OLDER: "Older calls", "更早的调用";
    LOOKED_BACK_TO: "Looked through the calls back to", "已查看此时刻之后的调用：";
    LOOK_ON: "Look further back", "查看更早的调用";
    WHY: "Why", "原因";
    TIMELINE: "Timeline", "时间线";
    TIMELINE_HINT: "One lane for each attempt; the broken line is the clock that bounds it.", "每次尝试一行；虚线是约束它的时限。";
    BAR_QUEUED: "queued", "排队";
    BAR_HELD: "held", "暂留";
    BAR_ATTEMPT: "attempt", "尝试";
    BAR_PAUSE: "pause before the next attempt", "下次尝试前的等待";
    BAR_WAITING: "waiting for somebody", "等待外部";
    BAR_DOUBT: "in doubt", "存疑";
    BAR_PROBE: "probe", "探查";
    UNTIL_NOW: "goes on", "仍在继续";
    AT_MOST_UNTIL: "at most until", "最迟到";
    AS_SENT: "As sent", "发送时";
    AS_RUN: "As run", "执行时";
    CORRECTED: "Corrected", "已修正";
    RESULT: "Result", "结果";
    ERROR: "Error", "错误";
    MOVES: "Moves", "状态变化";
    ATTEMPTS: "Attempts", "尝试";
    FACTS: "Facts", "详情";
    NONE: "None.", "无。";
    SHOW_ALL: "Show all of it", "全部显示";
    CUT: "The beginning only", "仅显示开头";
    COPY: "Copy", "复制";
    COPY_CURL: "As curl", "curl 形式";
    COPY_CLI: "As a command", "命令行形式";
    COPY_PYTHON: "As Python", "Python 形式";
    AGAIN: "To send it again", "再次发送";
    LEFT_OUT: "Only the first and the last ones are shown. Between them left out:", "仅显示最早和最新的部分。中间省略：";
    FOLDED: "Smaller moves", "次要变化";
    CANCEL: "Cancel this call", "取消此调用";
    CANCEL_WRITES: "It writes and runs: it may have acted already, and is in doubt then.", "该调用会写入且正在运行：可能已经产生效果，取消后会变为存疑。";
    REASON: "Reason", "原因";
    FROM: "From", "原状态";
    TO: "To", "新状态";
    DETAILS: "Details", "详细";
    RETRY: "Call again as a new call", "作为新调用重试";
    RETRY_HINT: "A new call with its own key. The arguments may be edited.", "使用新幂等键的新调用，可以修改参数。";
    RETRY_WRITES: "The tool writes: what this call may have done is done once more.", "该工具会写入：此调用可能产生的效果会再发生一次。";
    RETRY_NOT: "Not before it is over: with another key it would be done twice. A call in doubt is settled first.", "结束之前不能重试：使用其他幂等键会再执行一次。存疑的调用请先裁定。";
    KEY: "Key", "幂等键";
    NO_TRACE: "no trace", "无 trace";
    EFFECT_NONE: "It had no effect.", "没有产生效果。";
    EFFECT_APPLIED: "Its effect happened.", "效果已产生。";
    EFFECT_NOT_APPLIED: "Its effect did not happen.", "效果未产生。";
    EFFECT_UNKNOWN: "Whether its effect happened is unknown.", "效果是否产生未知。";
    DOUBTS_HINT: "What may have happened, and cannot be proven. Nothing here is ever run again; somebody says what it was.", "可能已经发生但无法证明的调用。它们不会再次执行；由人来说明实际情况。";
    NO_DOUBTS: "No call is in doubt.", "没有存疑的调用。";
    SENT: "What was sent", "发送的内容";
    IN_DOUBT_SINCE: "In doubt since", "存疑起始";
    FENCED: "what it started is proven gone", "它启动的一切已证实终止";
    NOT_FENCED: "what it started is not proven gone and may still act", "它启动的一切未证实终止，可能仍在运行";
    BY_CLIENT: "its caller's own program", "调用方自己的程序";
    QUARANTINED: "Postgres lost writes while it was open: which attempts there were cannot be known.", "Postgres 曾丢失写入：无法确定有过哪些尝试。";
    PROBE: "Probe", "探查";
    PROBE_NONE: "no probe", "无探查";
    PROBE_NEXT: "asks again", "再次探查";
    SETTLE: "Say what it was", "裁定";
    APPLIED: "It happened", "已生效";
    NOT_APPLIED: "It did not happen", "未生效";
    ABANDONED: "Nobody will ever know", "永远无法确定";
    SETTLE_RESULT: "Its result as JSON, if it is known", "结果（JSON，如果已知）";
    NOTE: "How that is known", "依据";
    ACTOR: "Your name", "你的名字";
    TOO_EARLY: "That it did not happen cannot be known before its attempt's own time is over, at", "在其尝试的时限结束之前无法确定未生效，时限为";
    NEEDS_FENCE: "That it did not happen cannot be known while its worker may still act. Prove the worker gone:", "在其 worker 可能仍在运行时无法确定未生效。请先证明 worker 已终止：";
    BY_TIME_ONLY: "I decide by time alone: the worker is not proven gone and may still act", "仅凭时间裁定：worker 未被证实终止，可能仍在运行";
    SETTLED: "Settled", "已裁定";
    RECORDED: "What was recorded:", "记录为：";
    RESULT_IS_NO_JSON: "The result is no JSON. Write a text with quotation marks, or leave it empty.", "结果不是 JSON。文本请加引号，或留空。";
    ASKED_BY: "Asked by", "请求者";
    PRIORITY: "Priority", "优先级";
    SOURCE: "Source", "来源";
    TRACE: "Trace", "Trace";
    WAS_FIRST: "It was decided before, by", "此前已由以下操作者裁定：";
    MAY_NOT_SETTLE: "Your token may look and not settle (scope settle).", "你的 token 可以查看，不能裁定（需要权限 settle）。";
    WAITING_HINT: "What waits for somebody outside the fleet. A yes is for exactly the arguments that are shown.", "等待外部处理的调用。批准只对显示的参数有效。";
    NO_WAITING: "No call waits.", "没有等待中的调用。";
    AWAITS: "Waits for", "等待";
    UNTIL: "Until", "截止";
    APPROVED_BY: "Has said yes", "已批准";
    OF: "of", "/";
    APPROVE: "Approve", "批准";
    DENY: "Deny", "拒绝";
    DECIDE: "Decide", "决定";
    CALLERS_YES: "Its caller decides.", "由调用方决定。";
    SEE_CALL: "All of its arguments are on its page, and the form.", "完整参数和表单在其页面上。";
    HASH: "Hash of the arguments", "参数哈希";
    DECIDED: "Decided", "已决定";
    NO_TOOLS: "No tool is applied.", "没有已应用的工具。";
    EFFECT: "Effect", "效果类别";
    VERSION: "Version", "版本";
    QUEUE: "Queue", "队列";
    SERVER: "MCP server", "MCP 服务器";
    PIN: "Pinned to", "固定为";
    PINNED: "pinned", "已固定";
    PAUSED: "paused", "已暂停";
    NOT_AS_PINNED: "not as pinned, refused:", "与固定的定义不符，已拒绝：";
    LINT: "What the lint says", "lint 的意见";
    VERSIONS: "Versions", "版本历史";
    SINCE_VERSION: "Changed since version", "相对此版本的变化：";
    MANIFEST: "Manifest", "清单";
    RETIRED: "retired", "已停用";
    PLACE: "Place", "位置";
    BEFORE: "Before", "之前";
    NOW: "Now", "现在";
    LIMIT: "Limit", "限制";
    LATENCY: "p50 / p95", "p50 / p95";
    USAGE_HINT: "Calls, success and duration of the last hour, counted from its newest 20000 calls.", "最近一小时的调用数、成功率和用时，按最新的 20000 个调用统计。";
    DESCRIPTION: "Description", "描述";
    PLAYGROUND: "Playground", "试用";
    PLAYGROUND_HINT: "Check asks the door and stores nothing. Run makes a real call.", "检查只询问入口，不保存任何内容。运行会发起真实调用。";
    CHECK: "Check", "检查";
    RUN_IT: "Run", "运行";
    NOT_CHECKED: "The arguments are others than those that were looked at. Look at them once more.", "参数与刚才检查的不同，请再检查一次。";
    RUN_WRITES: "This tool writes. Run it once, under this key:", "该工具会写入。使用此幂等键运行一次：";
    RUN_NOW: "Yes, run it", "确认运行";
    KEY_HINT: "The same key is the same call: leave it empty for a new one.", "相同的幂等键是同一个调用：留空则生成新的。";
    VERDICT: "What the door says", "入口的判断";
    DEFINITION: "As models see it", "模型看到的定义";
    SCHEMA: "Schema of its arguments", "参数 schema";
    MAY_NOT_CALL: "Your token may look and not call (scope call).", "你的 token 可以查看，不能调用（需要权限 call）。";
    NO_WORKERS: "No worker is on record.", "没有 worker 记录。";
    BEAT: "Last heartbeat", "最近心跳";
    SLOTS: "Running of slots", "运行数/槽位";
    QUEUES: "Queues", "队列";
    MACHINE: "Machine", "机器";
    GONE: "Proven gone", "已证实终止";
    ALL_WORKERS: "All on record", "全部记录";
    BREAKERS: "Breakers", "熔断器";
    PAUSES: "Controls", "控制";
    LIMITS: "Limits", "限制";
    LIMITS_WRITTEN: "Limits of the manifest", "清单中的限制";
    AT_A_TIME: "at a time", "个同时进行";
    INTERCEPTORS: "Interceptors", "拦截器";
    TARGET: "Target", "目标";
    SETTING: "Setting", "设置";
    BY: "By", "操作者";
    NEXT_START: "Next start", "下次开始";
    LIFT: "Lift", "解除";
    PAUSE_CALLS: "Pause calls of a tool or of a queue", "暂停某个工具或队列的调用";
    PURGE_CACHE: "Forget the kept answers of a tool", "清除某个工具的缓存结果";
    FORCE_BREAKER: "Force a breaker", "强制熔断器";
    CHANGE_LIMIT: "Change a limit", "修改限制";
    SET_MODE: "Set the mode of an interceptor or a brake", "设置拦截器或限制机制的模式";
    ONLY_THESE: "Let only these interceptors act", "只让这些拦截器生效";
    SET_IT: "Set", "设置";
    FOR_MINUTES: "For so many minutes", "持续分钟数";
    REFUSE_NEW: "Refuse new calls, do not have them wait", "拒绝新调用，而不是让其等待";
    CALLERS_TOLD: "What callers are told", "告诉调用方的内容";
    POSITION: "Position", "位置";
    PER_MS: "In so many ms", "每多少毫秒";
    BURST: "At once", "突发";
    NAMES: "Names", "名称列表";
    WHOLE_TENANT: "All calls of this tenant", "该租户的全部调用";
    REPLACE: "Change the one that is there", "替换已有的控制";
    POINTER: "Only with this argument (/account)", "仅限此参数（/account）";
    VALUE: "of this value", "等于此值";
    MODE_HINT: "One of a tool that has no such brake changes nothing until it has.", "工具没有相应机制时，设置不会产生任何变化。";
    NUMBER: "No.", "编号";
    ABOUT: "About", "范围";
    FORCED: "(forced)", "（强制）";
    SINCE_THEN: "Since", "起始";
    ALL_TOOLS: "All tools", "所有工具";
    CONTROL_LOG: "Every change that was ever made:", "所有变更记录：";
    MODE: "Mode", "模式";
    CHANGED: "Changed", "已更改";
    STREAMS_HINT: "What happens to the calls of a session, as it happens.", "会话中的调用发生的事件，实时显示。";
    RAW_EVENTS: "Its events as they come", "实时事件";
    TOLD_EVENTS: "What the speaker tells of this turn", "这个 turn 的讲述";
    SUCCESS_RATE: "Success", "成功率";
    FORM_ADD: "Add", "添加";
    FORM_REMOVE: "Remove", "删除";
    FORM_REQUIRED: "required", "必填";
    FORM_KIND: "Kind", "种类";
    FORM_EDITED: "The arguments were edited by hand.", "参数已手动修改。";
    FORM_RESET: "Make the form again", "重新生成表单";
    SESSION_NAME: "Session", "会话";
    EVENTS: "Events", "事件";
    NO_SESSION: "Name a session.", "请指定会话。";
    FOUND_NOTHING: "Nothing was found. A search takes a whole call id, session, run or trace id; a key needs its tool in front: TOOL KEY.", "没有找到。搜索需要完整的调用 id、会话、run 或 trace id；幂等键前面需要写工具名：TOOL KEY。";
    MORE: "There are more.", "还有更多。";
    NAME: "Name", "名称";
    KIND: "Kind", "类型";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_there_in_both_languages() {
        for (name, word) in ALL {
            assert!(
                !word.0.trim().is_empty() && !word.1.trim().is_empty(),
                "{name}"
            );
        }
    }
}
