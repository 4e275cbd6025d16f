// Draining the only worker: the button asks for confirmation. Then the worker takes no more work,
// and disappears once its runs have ended.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

export default async function drain(place) {
    const { client } = place;
    const workers = () => client.ask("GET", "workers");
    const sleeps = await client.submit({ goal: "Sleep", agent_id: "sleep", child_id: "s", inputs: { ms: 3_600_000 } });
    const [{ worker_id }] = await until("the only worker runs the agent", async () => {
        const all = await workers();
        return all.length === 1 && all[0].running === 1 && all;
    });
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go("workers");
    const row = anna.page.getByRole("row", { name: worker_id });
    await row.getByText("takes work", { exact: true }).waitFor();
    const drains = () => row.getByRole("button", { name: `Drain ${worker_id}` }).click();
    const asked = await anna.replying(undefined, drains);
    assert.ok(asked.startsWith(`Drain ${worker_id}?`) && asked.includes("hands back"), asked);
    assert.equal((await workers())[0].draining, false, "a declined confirmation changes nothing");
    await anna.replying("", drains);
    await row.getByText("Done.").waitFor();
    await until("the worker drains", async () => (await workers())[0].draining);

    await anna.go("workers", "main .state:has-text('1 draining')");
    await row.getByText("ends soon").waitFor();
    assert.equal(await row.getByRole("button").count(), 0, "a draining worker has no button");
    await anna.isAccessible();
    // The worker continues its current run; new work waits for another worker.
    const late = await client.submit({ goal: "Come too late", agent_id: "echo" });
    await anna.go(`runs/${late}`, "#head .state:has-text('waits for a worker')");
    assert.equal((await client.found(sleeps)).status, "working");

    // The list updates by itself.
    await anna.go("workers", `th:text-is('${worker_id}')`);
    await client.ask("POST", `runs/${sleeps}/cancel`, {});
    await anna.sees("main :text('No worker answers')");
    await client.ask("POST", `runs/${late}/cancel`, {});
    await anna.leave();
}
