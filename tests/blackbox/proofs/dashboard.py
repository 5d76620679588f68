"""Every query of deploy/grafana/toolfleet.json is answered with a number by a Prometheus that scrapes a fleet under load."""

import asyncio
import json
import math
import re
import time
from pathlib import Path

import processes
from busy import PAUSED, Load, OwnWorker, Service, tools
from client import Client
from gateways import Gateways, listens
from prometheus import Prometheus
from waiting import check, until

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
BOARD = DEPLOY / "grafana/toolfleet.json"
ALERTS = DEPLOY / "alerts.yaml"
ANSWERED_SECONDS = 120
FULL_SECONDS = 60
RATE_INTERVAL = "10s"
# Two dispatchers, two workers, a gateway, and a worker with an interceptor.
PROCESSES = 6
# Where a panel shows what Postgres can be asked, both must agree.
TRUTH = {
    "In doubt": "SELECT count(*) AS count FROM toolfleet.in_doubt",
    "Paused calls": PAUSED,
    "Breakers open": "SELECT count(*) AS count FROM toolfleet.breakers WHERE state <> 'closed'",
    "Waiting calls": "SELECT count(*) AS count FROM toolfleet.open_calls WHERE state = 'queued'",
}
FIRING = ("ToolfleetBreakerOpened", "ToolfleetToolChanged")
METRIC = re.compile(r"toolfleet_[a-z0-9_]+")
SELECTOR = re.compile(r"(?:toolfleet_[a-z0-9_]+|target_info)(?:\{[^}]*\})?")


async def prove(proof):
    board = json.loads(BOARD.read_text())
    panels, variables = is_well_arranged(board)
    queries = [(panel["title"], target) for panel in panels for target in panel["targets"]]
    async with Service() as service, proof.fleet(tools(service), workers=2, dispatchers=2) as dev:
        async with Client(dev) as client, OwnWorker(proof, dev) as own, Prometheus(proof.folder, ALERTS) as prometheus:
            await all_are_scraped(proof, dev, own, prometheus)
            async with Load(dev, client) as load:
                await load.begin()
                asked = Asked(prometheus, load.since)
                await all_are_answered(proof, asked, queries, variables)
                if not proof.short:
                    await asyncio.sleep(FULL_SECONDS)
                    victim = dev.pids("worker")[0]
                    dev.kill(victim)
                    await dev.replaced("worker", victim)
                    await all_are_scraped(proof, dev, own, prometheus)
                    asked = Asked(prometheus, time.time())
                    await all_are_answered(proof, asked, queries, variables)
                await a_wrong_name_is_noticed(asked, queries)
                await every_value_can_be_chosen(proof, asked, queries, variables)
                answer = await Gateways(dev).ask("GET", "/v1/tools")
                check(answer.status == 200, f"the gateway answers {answer.status}")
                await the_alerts_are_evaluated(proof, prometheus)
                load.note(proof)
            await panels_agree_with_postgres(proof, dev, asked, queries)
            ready = await prometheus.now(asked.filled(expression(queries, "Ready processes")))
            check(ready == [PROCESSES], f"{PROCESSES} processes run, and the panel shows {ready}")


def is_well_arranged(board):
    """The panels with queries, and the variables with one; every panel has its own place, below a row."""
    taken, rows = set(), [panel for panel in board["panels"] if panel["type"] == "row"]
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    for panel in board["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        check(place["x"] + place["w"] <= 24, f"{panel['title']} is wider than the dashboard")
        check(not cells & taken, f"{panel['title']} lies over another panel")
        taken |= cells
    check(board["panels"][0]["type"] == "row", "the first panel is not a row")
    check(len({panel["id"] for panel in board["panels"]}) == len(board["panels"]), "two panels have the same id")
    check(len({panel["title"] for panel in panels}) == len(panels), "two panels have the same title")
    source = {"type": "prometheus", "uid": "${datasource}"}
    listed = {variable["name"]: variable for variable in board["templating"]["list"]}
    check(listed["datasource"]["type"] == "datasource", "the source of the data is no variable")
    variables = [variable for variable in listed.values() if variable["type"] == "query"]
    for one in [*panels, *variables, *(target for panel in panels for target in panel["targets"])]:
        check(one["datasource"] == source, f"{one.get('title', one)} has a source of data of its own")
    check(
        len(rows) > 10 and all(panel["targets"] and panel["description"] for panel in panels),
        "a panel says or asks nothing",
    )
    return panels, variables


async def all_are_scraped(proof, dev, own, prometheus):
    """Tells Prometheus where the processes are, and waits until it has heard each of them."""

    async def fact():
        wanted = addresses(dev, own)
        prometheus.targets(wanted)
        return len(wanted) == PROCESSES and await prometheus.up() == wanted

    await until("every process is scraped", fact, 60)
    proof.note(f"Prometheus scrapes {', '.join(sorted(addresses(dev, own)))}")


async def all_are_answered(proof, asked, queries, variables):
    """Waits until each query and each variable has a number or a value."""
    began = time.monotonic()
    while missing := await unanswered(asked, queries, variables):
        check(time.monotonic() - began < ANSWERED_SECONDS, "\n    ".join(["unanswered:", *missing]))
        await asyncio.sleep(0.5)
    took = time.monotonic() - began
    proof.note(f"{len(queries)} queries and {len(variables)} variables are answered after {took:.0f} s")


async def unanswered(asked, queries, variables):
    """A sentence for each that has no answer."""
    whys = [(f"{title}: {target['expr']}", await asked.is_unanswered(target)) for title, target in queries]
    missing = [f"{query} ({why})" for query, why in whys if why]
    return missing + [
        f"no value for {one['name']}: {one['definition']}" for one in variables if not await asked.values(one)
    ]


async def a_wrong_name_is_noticed(asked, queries):
    """Each query once more, with a metric that does not exist: none may count as answered."""
    for title, target in queries:
        for metric in set(METRIC.findall(target["expr"])):
            wrong = {**target, "expr": re.sub(rf"\b{metric}\b", f"{metric}_gone", target["expr"])}
            check(
                await asked.is_unanswered(wrong), f"{title} would count as answered without {metric}: {wrong['expr']}"
            )


async def every_value_can_be_chosen(proof, asked, queries, variables):
    """With each value of each variable, every query is still one that Prometheus understands."""
    for variable in variables:
        values = await asked.values(variable)
        for value in values:
            for title, target in queries:
                numbers = await asked.prometheus.numbers(asked.filled(target["expr"], **{variable["name"]: value}))
                check(numbers is not None, f"{title} is wrong where {variable['name']} is {value}")
        proof.note(f"the variable {variable['name']} has the values {', '.join(values)}")


async def the_alerts_are_evaluated(proof, prometheus):
    """Prometheus has every metric that an alert names, evaluates every alert, and sees the breaker that opened and the tool that changed."""
    named = set(METRIC.findall(re.sub(r"#.*", "", ALERTS.read_text())))

    async def all_are_there():
        return named and named <= set(await prometheus.ask("label/__name__/values"))

    await until(f"the fleet has the metrics that alerts name: {sorted(named)}", all_are_there, 30)

    async def rules():
        groups = (await prometheus.ask("rules"))["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    async def all_were_evaluated():
        found = await rules()
        return found and all(rule["health"] != "unknown" for rule in found.values())

    await until("every alert was evaluated", all_were_evaluated, 30)
    wrong = {name: rule["lastError"] for name, rule in (await rules()).items() if rule["health"] != "ok"}
    check(not wrong, f"alerts that cannot be evaluated: {wrong}")

    async def are_firing():
        found = await rules()
        return all(found[name]["state"] == "firing" for name in FIRING)

    await until(f"{' and '.join(FIRING)} fire", are_firing, 30)
    proof.note(f"{len(await rules())} alerts name {len(named)} metrics, all there; {' and '.join(FIRING)} fire")


async def panels_agree_with_postgres(proof, dev, asked, queries):
    """What stands still after the load is the same in a panel and in the ledger."""
    for title, sql in TRUTH.items():
        query = asked.filled(expression(queries, title))

        async def agreed():
            shown, true = await asked.prometheus.now(query), (await dev.row(sql))["count"]
            return shown == [true] and shown

        [seen] = await until(f"the panel {title} shows what Postgres has", agreed, 60, 0.2)
        check(seen > 0, f"{title}: nothing was there to be shown")
        proof.note(f"the panel {title} shows {seen:g}, as Postgres does")


def expression(queries, title):
    [found] = [target["expr"] for name, target in queries if name == title]
    return found


class Asked:
    """Asks a Prometheus as Grafana does: with values for the variables, and from a moment to now."""

    def __init__(self, prometheus, since):
        self.prometheus, self.since = prometheus, since

    def filled(self, query, **chosen):
        """A query with its variables replaced: all queues, all tools, unless others are chosen."""
        values = {"queue": ".*", "tool": ".*", **chosen}
        values |= {"__rate_interval": RATE_INTERVAL, "__range": f"{math.ceil(time.time() - self.since) + 1}s"}
        filled = re.sub(r"\$(\w+)", lambda found: values[found[1]], query)
        check("$" not in filled, f"a variable is left: {filled}")
        return filled

    async def is_unanswered(self, target):
        """Why a query of a panel has no number, or None. Each of its selectors must have a series, too: a side of an `or` can hide
        another that has none."""
        query = self.filled(target["expr"])
        numbers = await self.prometheus.numbers(query, None if target.get("instant") else self.since)
        if not numbers:
            return "it is wrong" if numbers is None else "no series with a number"
        for selector in SELECTOR.findall(query):
            if not await self.prometheus.numbers(f"count(last_over_time({selector}[1h]))"):
                return f"no series for {selector}"
        return None

    async def values(self, variable):
        """What a variable offers, asked for as Grafana does."""
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
        check(
            variable["query"]["query"] == variable["definition"],
            f"{variable['name']} asks for something else than it says",
        )
        return await self.prometheus.ask(
            f"label/{label}/values", **{"match[]": metric, "start": self.since, "end": time.time()}
        )


def addresses(dev, own):
    """Where the processes of the fleet have their metrics; none while one of them does not listen yet."""
    pids = [*dev.pids("dispatcher"), *dev.pids("worker"), *dev.pids("gateway"), own.process.pid]
    apis = {listens(pid) for pid in dev.pids("gateway")}
    ports = [[port for port in processes.listens_on(pid) if port not in apis] for pid in pids]
    return {f"127.0.0.1:{port}" for found in ports for port in found} if all(ports) else set()
