//! A call that Postgres stores after its dispatcher has given up waiting: it is run all the same, and soon.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::json;

/// Has the commit of a new call wait for a row in `go`. What waits in a commit is out of reach of `statement_timeout`.
const HOLD_COMMITS: &str = "
    CREATE TABLE public.go (now boolean);
    GRANT SELECT ON public.go TO PUBLIC;
    CREATE FUNCTION public.hold_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        WHILE NOT EXISTS (SELECT FROM public.go) LOOP
            PERFORM pg_sleep(0.02);
        END LOOP;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER hold_commit AFTER INSERT ON toolfleet.open_calls
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.hold_commit();";

#[tokio::test]
async fn a_call_that_is_stored_after_its_dispatcher_gave_up_runs_soon() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let pool = &fleet.database.pool;
    sqlx::raw_sql(HOLD_COMMITS).execute(pool).await.unwrap();
    let submission = fleet.submit("look", &json!({"what": "a"})).key("k");
    let given_up = submission.wait().await;
    assert_eq!(
        given_up["error"]["code"], "store_unavailable",
        "{}",
        *given_up
    );
    assert_eq!(witness.asked("a"), 0);
    let going = "INSERT INTO public.go VALUES (true)";
    sqlx::query(going).execute(pool).await.unwrap();
    // This holds that one of the sweep's looks finds it, and not which: it passes without `suspect_late`, too.
    witness.until_asked("a", 1).await;
    let again = fleet
        .submit("look", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(again["state"], "succeeded", "{}", *again);
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}
