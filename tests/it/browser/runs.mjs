// The list of runs: each filter, rows that change in place, and the notice of new runs.
import assert from "node:assert/strict";
import { Person } from "./page.mjs";

const LABEL = { part: "filters" };

export default async function runs(place) {
    const { client } = place;
    const submit = (run) => client.submit({ ...run, labels: { ...LABEL, ...run.labels } });
    const made = {
        completed: await submit({ goal: "It is done", agent_id: "echo", labels: { which: "one" }, thread_id: "talk-1" }),
        failed: await submit({ goal: "It fails", agent_id: "fail", inputs: { retryable: false } }),
        input_required: await submit({ goal: "It asks", agent_id: "ask" }),
        working: await submit({ goal: "It sleeps", agent_id: "sleep", inputs: { ms: 3_600_000 } }),
        paused: await submit({ goal: "It pauses", agent_id: "spend", max_cost_usd: 0.03, on_exhausted: "pause", inputs: { usd: 0.01, calls: 5 } }),
        cancelled: await submit({ goal: "It is cancelled", agent_id: "sleep", inputs: { ms: 3_600_000 } }),
        timed_out: await submit({ goal: "It is late", agent_id: "sleep", timeout_ms: 200, inputs: { ms: 3_600_000 } }),
    };
    await client.ask("POST", `runs/${made.cancelled}/cancel`, {});
    for (const [status, trace] of Object.entries(made)) await client.reaches(trace, status);
    const anna = await Person.enter(place, place.tokens.anna);
    const rows = async () => (await anna.find("li.run").evaluateAll((rows) => rows.map((row) => row.id.slice(2)))).sort();
    const names = (traces) => traces.map((trace) => Object.keys(made).find((name) => made[name] === trace) ?? trace).sort();
    /** Filters by these fields, with the other fields empty. Returns the listed runs. */
    const filtered = async (fields) => {
        const wanted = { status: "", agent_id: "", label: "part=filters", q: "", min_cost_usd: "", thread_id: "", since: "", ...fields };
        for (const [name, value] of Object.entries(wanted)) {
            const field = anna.find(`form.filters [name=${name}]`);
            if (name === "status") await field.selectOption(value);
            else if (name === "waiting_for_human") await field.check();
            else await field.fill(value);
        }
        await Promise.all([anna.page.waitForEvent("load"), anna.find("button:text('Filter')").click()]);
        await anna.sees("a:text('Clear')");
        return names(await rows());
    };
    await anna.go("");
    assert.deepEqual(await filtered({}), Object.keys(made).sort());
    // The address contains the whole view: another person sees the same.
    const bert = await Person.enter(place, place.tokens.bert);
    await bert.page.goto(anna.page.url());
    assert.equal(await bert.count("li.run"), Object.keys(made).length);
    await bert.leave();
    for (const status of [...Object.keys(made), "aborted"]) {
        assert.deepEqual(await filtered({ status }), made[status] ? [status] : []);
    }
    for (const [fields, found] of [
        [{ agent_id: "ask" }, "input_required"],
        [{ label: "which=one" }, "completed"],
        [{ thread_id: "talk-1" }, "completed"],
        [{ q: made.failed.slice(0, 12) }, "failed"],
        [{ min_cost_usd: "0.03" }, "paused"],
    ]) assert.deepEqual(await filtered(fields), [found], JSON.stringify(fields));
    assert.deepEqual(await filtered({ thread_id: "talk-2" }), []);
    // Filter by day: midnight in UTC.
    const day = (days) => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);
    assert.deepEqual(await filtered({ since: day(-1) }), Object.keys(made).sort());
    assert.equal(await anna.find("[name=since]").inputValue(), day(-1), "the chosen filter is shown");
    assert.deepEqual(await filtered({ since: day(1) }), []);
    assert.deepEqual(await filtered({ waiting_for_human: true }), ["input_required", "paused"]);
    await Promise.all([anna.page.waitForURL(anna.base), anna.find("a:text('Clear')").click()]);

    // The spenders, by agent and by model.
    for (const by of ["by agent", "by model"]) await anna.sees(`.today ul:has-text('${by}') li:has-text('$')`);
    await anna.sees(".today li:has-text('spend')");

    // A row changes in place, other rows stay, and new runs wait behind a notice.
    await anna.go("?label=part%3Dfilters", "#live:text('● live')");
    const same = `#t-${made.completed}`;
    for (const row of [same, `#t-${made.paused}`]) await anna.find(row).evaluate((row) => { row.isAsItWas = true; });
    await client.ask("POST", `runs/${made.working}/cancel`, {});
    await anna.sees(`#t-${made.working} .mark:has-text('cancelled')`);
    await client.finish({ goal: "It is new", agent_id: "echo", labels: LABEL });
    await anna.sees("#news a:text('1 new')");
    for (const row of [same, `#t-${made.paused}`]) assert.ok(await anna.find(row).evaluate((row) => row.isAsItWas), `${row} was not drawn again`);
    assert.equal(await anna.count(".goal:text('It is new')"), 0);
    await anna.find("#news a").click();
    await anna.sees(".goal:text('It is new')");
    // A row that no longer matches the filter stays readable.
    await anna.go("?label=part%3Dfilters&status=input_required", "#live:text('● live')", `#t-${made.input_required}`);
    const { questions } = await client.ask("GET", "questions?limit=100");
    const asked = questions.find(({ trace_id }) => trace_id === made.input_required);
    // Once the list shows the new run, it has been reloaded.
    await submit({ goal: "It asks as well", agent_id: "ask" });
    await anna.sees("#news a:text('1 new')");
    await client.ask("POST", `runs/${made.input_required}/contexts/${asked.child_id}/answers/${asked.number}`, { answer: "yes" });
    await anna.sees(`#t-${made.input_required}.gone`);
    await anna.leave();
}
