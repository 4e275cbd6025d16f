// A worker dies in the middle of a run: the page shows the next attempt, and then that the run
// still completed.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

/** An agent slow enough to be killed; the next attempt continues from its journal. */
const SLOW = {
    agent_id: "slow", kind: "llm", model: "scripted", tools: ["fs.list"],
    script: [...Array(12)].map((_, number) => ({ say: `Look ${number}.`, call: [{ tool: "fs.list", arguments: {} }], ms: 500 })).concat([{ say: "Seen all." }]),
};

export default async function lost(place) {
    const { client } = place;
    await client.apply(SLOW);
    const trace = await client.submit({ goal: "Look around", agent_id: "slow", child_id: "looks" });
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go(`runs/${trace}/contexts/looks`, "#live:text('● live')", "#e-1", "#head .state:has-text('attempt 1 on ')");
    const [, worker] = (await anna.find("#head .state").textContent()).match(/attempt 1 on (\w+)/);
    await place.ask(`kill ${worker}`);
    await anna.go(`runs/${trace}`, "#live:text('● live')", "#r-looks .kind:has-text('attempt 2')");
    await anna.sees("#head .mark.good");
    await anna.sees("#result pre:text('Seen all.')");
    await anna.find(".views a:text('Timeline')").click();
    await anna.sees(".timeline svg[aria-label*='1 lost attempt'] rect.lost");
    await anna.go(`runs/${trace}/contexts/looks`, "#head .state:has-text('attempt 2 on ')", "#journal > li:has-text('Seen all.')");
    await until("the worker is removed from the list", async () => {
        await anna.go("workers", ".list tbody th");
        return !(await anna.find(".list tbody th").allTextContents()).includes(worker);
    });
    assert.equal(await client.ask("GET", `runs/${trace}/result`), "Seen all.");
    await anna.leave();
}
