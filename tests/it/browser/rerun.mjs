// A failed graph runs again: its unsuccessful steps, or chosen steps and all that follow them. Both
// are new runs.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const GRAPH = {
    name: "release", mode: "parallel",
    steps: [
        { id: "build", agent_id: "echo", task_description: "Build it" },
        { id: "notes", agent_id: "echo", task_description: "Tell what is new" },
        { id: "allow", approve: { who: "anybody", question: "May it go out?" }, depends_on: ["build"] },
        { id: "publish", agent_id: "echo", task_description: "Publish it", depends_on: ["allow"] },
    ],
};

export default async function rerun(place) {
    const { client } = place;
    const answer = async (trace, answer) => {
        await client.reaches(trace, "input_required");
        const { questions } = await client.ask("GET", "questions?limit=100");
        const { child_id, number } = questions.find(({ trace_id }) => trace_id === trace);
        await client.ask("POST", `runs/${trace}/contexts/${child_id}/answers/${number}`, { answer });
    };
    const failed = await client.submit(GRAPH);
    await answer(failed, "deny");
    await client.reaches(failed, "failed");
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go(`runs/${failed}`, "#head .mark.bad");

    const { page } = anna;
    const named = (name) => page.getByRole("button", { name, exact: true });
    /** The id of the shown run, once it is not this one. */
    const another = async (trace) => {
        await until("another run is shown", () => /runs\/\w+$/.test(page.url()) && !page.url().endsWith(trace));
        return page.url().split("/").at(-1);
    };
    /** The steps that were taken over from an earlier run. */
    const taken = async (trace) => {
        const { contexts } = (await client.ask("GET", `runs/${trace}/receipt`)).receipt;
        return contexts.filter((one) => one.taken_from).map((one) => one.child_id);
    };
    const again = () => named("Rerun").click();
    const asked = await anna.replying(undefined, again);
    assert.match(asked, /Run the unsuccessful steps again.*Its approvals are asked again/);
    assert.ok(page.url().endsWith(failed), "a declined confirmation stays on the page");
    await anna.replying("", again);
    const second = await another(failed);
    await anna.sees("#head .mark.asks");
    await answer(second, "approve");
    await anna.sees("#head .mark.good");
    assert.deepEqual(await taken(second), ["build", "notes"]);

    // This run has no failed step, so only chosen steps can run again.
    await anna.go(`runs/${second}`, "#head .mark.good");
    assert.equal(await named("Rerun").count(), 0);
    await page.getByText("Rerun from a step").click();
    await page.getByRole("listbox", { name: "Steps" }).selectOption(["notes", "publish"]);
    assert.match(await anna.replying("", () => named("Rerun").click()), /Run these steps/);
    const third = await another(second);
    // An approval is valid only for the run in which it was given.
    await answer(third, "approve");
    await anna.sees("#head .mark.good");
    assert.deepEqual(await taken(third), ["build"]);
    assert.equal((await client.found(failed)).status, "failed", "an ended run is unchanged");
    await anna.leave();
}
