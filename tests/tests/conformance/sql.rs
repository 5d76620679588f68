//! SQL tools, on a real Postgres.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use conformance::{Behaviour, Case, KEY_ARGUMENT, OUTPUT_LIMIT, REFUSAL, Rig, SECRET, Tool, Watch};
use fleet::{call::Effect, secrets::Secrets};
use fleet_tests::{postgres::Database, proxy::Proxy, running, wait::LONG};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use uuid::Uuid;
use worker::executors::{AttemptContext, Executor, sql::SqlExecutor};

/// What a tool can do beside a statement of its own. `begun` is seen outside at once, even of a transaction that only reads
/// or is rolled back. Its program does not hear the signal with which Postgres cancels: else that fails, and not the statement.
const FUNCTIONS: &str = "
    CREATE FUNCTION @tool.begun(mark text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'trap '''' INT; exec cat >> @folder/' || mark); END $$;
    CREATE FUNCTION @tool.works(mark text, seconds int) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN PERFORM begun(mark); PERFORM pg_sleep(seconds); RETURN 1; END $$;
    CREATE FUNCTION @tool.refuses(mark text, message text) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN PERFORM begun(mark); RAISE EXCEPTION '%', message; END $$;
    CREATE FUNCTION @tool.leaves(mark text) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM begun(mark);
        PERFORM pg_advisory_lock(hashtext(mark)), set_config('lock_timeout', '7s', false);
        IF current_setting('transaction_read_only') = 'off' THEN
            EXECUTE format('CREATE TEMP TABLE %I ON COMMIT PRESERVE ROWS AS SELECT 1', mark);
            EXECUTE 'LISTEN everything';
        END IF;
        RETURN 1;
    END $$";

pub(crate) struct Sql {
    name: &'static str,
    effects: &'static [Effect],
    executor: SqlExecutor,
    database: Database,
    role: String,
    wire: Arc<Proxy>,
    secrets: Secrets,
    begun: PathBuf,
    crashes: Mutex<JoinSet<()>>,
    _folder: TempDir,
}

impl Sql {
    pub(crate) async fn new(name: &'static str, effects: &'static [Effect]) -> Self {
        let (folder, secrets) = super::secrets();
        let begun = folder.path().join("begun");
        fs::create_dir(&begun).unwrap();
        // The server writes there, as its own user.
        for path in [folder.path(), &begun] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let database = Database::fresh().await;
        let role = format!("tool_{}", Uuid::new_v4().simple());
        let (_, place) = database.url.split_once('@').unwrap();
        let (port, path) = place.rsplit_once(':').unwrap().1.split_once('/').unwrap();
        let wire = Proxy::to(port.parse().unwrap()).await;
        let url = |place: &str| format!("postgres://{role}:{SECRET}@{place}");
        let secret = |name: &str, place: &str| {
            fs::write(folder.path().join(name), url(place)).unwrap();
        };
        secret("WIRE", &format!("127.0.0.1:{}/{path}", wire.port()));
        secret("NOWHERE", "127.0.0.1:1/nothing");
        let rig = Self {
            name,
            effects,
            executor: SqlExecutor::new(Some(url(place).into())),
            database,
            wire: Arc::new(wire),
            secrets,
            begun,
            role,
            crashes: Mutex::default(),
            _folder: folder,
        };
        let role = format!(
            "CREATE ROLE @tool LOGIN PASSWORD '{SECRET}'; CREATE SCHEMA @tool AUTHORIZATION @tool;
             ALTER ROLE @tool SET search_path = @tool; GRANT USAGE ON SCHEMA toolfleet_tool TO @tool;
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool; CREATE TABLE @tool.done (n int);
             ALTER TABLE @tool.done OWNER TO @tool; {FUNCTIONS}"
        );
        let made = role.replace("@tool", &rig.role);
        let made = made.replace("@folder", &rig.begun.display().to_string());
        sqlx::raw_sql(AssertSqlSafe(made))
            .execute(&rig.database.pool)
            .await
            .unwrap();
        rig
    }

    /// Cuts the wire as soon as this tool is at work behind it, and ends what is left of it on the server.
    fn crash(&self, sessions: Sessions) {
        let wire = Arc::clone(&self.wire);
        self.crashes.lock().unwrap().spawn(async move {
            let since = Instant::now();
            while sessions.lines() == 0 && since.elapsed() < LONG {
                sleep(Duration::from_millis(5)).await;
            }
            wire.cut();
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%' \
                       AND pid <> pg_backend_pid()";
            sqlx::query(end)
                .bind(&sessions.mark)
                .execute(&sessions.pool)
                .await
                .unwrap();
        });
    }

    fn case(&self, behaviour: Behaviour, effect: Effect) -> Case {
        if behaviour == Behaviour::FlagsGarbage {
            return Case::NotApplicable("the worker makes JSON of rows: there is no other answer");
        }
        let sessions = Sessions {
            mark: Uuid::new_v4().simple().to_string(),
            pool: self.database.pool.clone(),
            begun: self.begun.clone(),
            role: self.role.clone(),
        };
        let database = match behaviour {
            Behaviour::ProvesNotStarted => "secret://NOWHERE",
            Behaviour::DoubtsCrashes => {
                self.crash(sessions.clone());
                "secret://WIRE"
            }
            _plain => "fleet",
        };
        let (statement, params) = statement(behaviour, effect, &sessions.mark);
        let executor =
            json!({"sql": {"database": database, "statement": statement, "params": params}});
        Case::Tool(Box::new(Tool {
            manifest: super::manifest(effect, &executor, &super::fields(behaviour)),
            arguments: super::exact(),
            secrets: self.secrets.clone(),
            watch: Box::new(sessions),
        }))
    }
}

impl Rig for Sql {
    fn name(&self) -> &str {
        self.name
    }

    fn executor(&self) -> &dyn Executor {
        &self.executor
    }

    fn tool(&self, behaviour: Behaviour, effect: Effect) -> BoxFuture<'_, Case> {
        Box::pin(async move { self.case(behaviour, effect) })
    }

    fn effects(&self) -> &[Effect] {
        self.effects
    }

    fn claim<'a>(&'a self, context: &'a AttemptContext) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.effects.contains(&Effect::Transaction) {
                let mut connection = self.database.connect().await;
                let (call, attempt) = (context.call_id, context.attempt_id);
                if context.attempt > 1 {
                    running::forget(&mut connection, call).await;
                }
                running::transaction(&mut connection, call, attempt).await;
            }
        })
    }

    /// Rows come as an array; these tools answer with one row.
    fn answer(&self, mut result: Value) -> Value {
        match result.as_array_mut().map(Vec::as_mut_slice) {
            Some([row]) => row.take(),
            _other => result,
        }
    }

    fn ends_with_proof(&self) -> bool {
        true
    }
}

/// Arguments as columns of their names.
fn echoed(names: &[&str]) -> (String, Value) {
    let columns = names.iter().enumerate();
    let columns = columns.map(|(index, name)| format!("${}::json AS {name}", index + 1));
    let columns: Vec<_> = columns.collect();
    let params: Vec<_> = names.iter().map(|name| format!("{{{name}}}")).collect();
    (format!("SELECT {}", columns.join(", ")), json!(params))
}

fn statement(behaviour: Behaviour, effect: Effect, mark: &str) -> (String, Value) {
    let plain = |statement: String| (statement, json!([]));
    match behaviour {
        Behaviour::CarriesValuesExactly | Behaviour::PreparesQuietly => {
            let arguments = super::exact();
            let names: Vec<_> = arguments.as_object().unwrap().keys().collect();
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            let (statement, params) = echoed(&names);
            (format!("{statement} FROM begun('{mark}')"), params)
        }
        Behaviour::PutsTheKeyIntoAnArgument => (
            format!("SELECT $1::text AS {KEY_ARGUMENT}"),
            json!([format!("{{{KEY_ARGUMENT}}}")]),
        ),
        Behaviour::TellsTheFacts | Behaviour::KeepsTheKey => {
            let facts = ["call_id", "attempt", "tenant", "session", "deadline_ms", "traceparent", "idempotency_key"];
            let told = facts.map(|fact| format!("current_setting('toolfleet.{fact}') AS {fact}"));
            plain(format!("SELECT {}", told.join(", ")))
        }
        Behaviour::PassesOnRefusals => plain(format!("SELECT refuses('{mark}', '{REFUSAL}')")),
        Behaviour::VeilsSecrets => plain(format!(
            "SELECT refuses('{mark}', 'the password {SECRET} is wrong')"
        )),
        Behaviour::ProvesNotStarted
        | Behaviour::DoubtsCrashes
        | Behaviour::KeepsTheDeadline
        | Behaviour::ObeysCancel
        | Behaviour::ObeysDrain => plain(format!("SELECT works('{mark}', 60)")),
        Behaviour::WaitsForSlowAnswers => plain(format!("SELECT works('{mark}', 1)")),
        Behaviour::BoundsAnswers => plain(format!(
            "SELECT repeat('x', {}) AS x, generate_series(1, 100000000) AS n",
            OUTPUT_LIMIT / 10
        )),
        Behaviour::FlagsGarbage => unreachable!("there is no such tool"),
        Behaviour::TakesSilence if effect == Effect::Read => plain("SELECT 1 AS n WHERE false".to_owned()),
        Behaviour::TakesSilence => plain("INSERT INTO done VALUES (1)".to_owned()),
        Behaviour::MendsText => plain(
            r#"SELECT '{"a": "x\u0000y", "b": ["\ud800z"]}'::json AS answer"#.to_owned(),
        ),
        Behaviour::HidesTheWorker => plain(
            "SELECT (SELECT json_object_agg(name, setting) FROM pg_settings) AS settings, to_json(a) AS session
             FROM pg_stat_activity a WHERE pid = pg_backend_pid()"
                .to_owned(),
        ),
        Behaviour::LeavesNothing => plain(format!("SELECT leaves('{mark}')")),
    }
}

/// What a tool does on the server.
#[derive(Clone)]
struct Sessions {
    pool: PgPool,
    mark: String,
    begun: PathBuf,
    role: String,
}

impl Sessions {
    fn lines(&self) -> usize {
        let written = fs::read_to_string(self.begun.join(&self.mark)).unwrap_or_default();
        written.lines().count()
    }
}

impl Watch for Sessions {
    fn begun(&self) -> BoxFuture<'_, usize> {
        Box::pin(async { self.lines() })
    }

    fn at_rest(&self) -> BoxFuture<'_, bool> {
        let left = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state <> 'idle') \
             + (SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE usename = $1 AND locktype = 'advisory') \
             + (SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relowner = $1::regrole)";
        Box::pin(async move {
            let left = sqlx::query_scalar::<_, i64>(left).bind(&self.role);
            left.fetch_one(&self.pool).await.unwrap() == 0
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_tools_keep_every_promise() {
    let rig = Sql::new("sql", &[Effect::Read, Effect::Once]).await;
    super::kept(&conformance::exercise(&rig).await, 36);
}
