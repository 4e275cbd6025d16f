// The playground of a `trellis dev`: the typed graph is checked, drawn and run, and the run
// continues after a failed step and a killed worker.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const GRAPH = `name: played
inputs: {calls: 3, ms: 1500, usd: 0.01}
steps:
  - {id: pay, agent_id: spend, task_description: Pay, input_from: [calls, ms, usd]}
  - {id: say, agent_id: echo, task_description: Say it, fallback: {agent_id: echo, task_description: Say less}}
`;

export default async function playground(place) {
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go("playground", "h1:text('Playground')", "#checked .mark.good", "#part svg");
    await anna.isAccessible();
    const text = anna.find("#graph-text");
    await text.fill(GRAPH.replace("spend", "spennd"));
    for (const seen of ["#checked .mark.bad", "#checked button:text('line 4')", "text=did you mean `spend`?"]) await anna.sees(seen);
    assert.ok(await anna.find("#run-graph").isDisabled(), "an invalid graph can't be run");
    await anna.isAccessible();
    await anna.find("#checked button:text('line 4')").click();
    const chosen = await text.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd));
    assert.match(chosen, /id: pay/);
    // All mistakes are shown at once.
    await text.fill(GRAPH.replace("spend", "spennd").replace("usd]", "euros]"));
    for (const seen of ["#checked .mark.bad:text('2 mistakes')", "text=did you mean `spend`?", "#checked li:has-text('euros')"]) await anna.sees(seen);
    await text.fill("name: [");
    await anna.sees("#checked .mark.bad");
    await text.fill(GRAPH);
    for (const seen of ["#checked .mark.good", "#part text:has-text('pay')", "#checked dd:text('pay → say')"]) await anna.sees(seen);
    // A file is opened in the editor.
    await text.fill("");
    await anna.find("#open-file").setInputFiles({ name: "played.yaml", mimeType: "application/yaml", buffer: Buffer.from(GRAPH) });
    await until("the graph is shown", async () => (await text.inputValue()) === GRAPH);
    for (const seen of ["#checked .mark.good", "#part text:has-text('pay')"]) await anna.sees(seen);
    await anna.find("#fail-step").selectOption("say");
    await anna.find("#run-graph").click();
    for (const seen of ["#played a", "#part .card.busy", "#head .mark.busy", "#head .money"]) await anna.sees(seen);
    await anna.replying("", () => anna.find("button:text('Kill the worker')").click());
    await anna.sees("#part .card.good >> nth=1");
    for (const seen of ["#played:has-text('has ended')", "#head .mark.good", "#head .money"]) await anna.sees(seen);
    await anna.find("#played a").click();
    for (const seen of ["#head .mark.good", ".row:has-text('attempt 2')"]) await anna.sees(seen);
    await anna.leave();
}
