// Nested parts have their own view with a link back: the graph of a group, and the money of an
// agent with children.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const GRAPH = {
    name: "book", mode: "sequential",
    steps: [
        { id: "plan", agent_id: "echo", task_description: "Plan it" },
        { id: "chapter", steps: [
            { id: "draft", agent_id: "ask", task_description: "Shall I draft it?" },
            { id: "edit", agent_id: "echo", task_description: "Edit it", depends_on: ["draft"] },
        ] },
    ],
};
const LEAF = { agent_id: "payer", kind: "llm", model: "scripted", script: [{ say: "paid", usage: { input_tokens: 1000, output_tokens: 1000 } }] };

export default async function inner(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    const link = (name) => anna.page.getByRole("link", { name, exact: true });
    const steps = async () => (await anna.find(".graph text.step").allTextContents()).map((text) => text.replace(/^\S+ /, ""));

    const book = await client.submit(GRAPH);
    await client.reaches(book, "input_required");
    await anna.go(`runs/${book}/graph`, "#live:text('● live')");
    assert.deepEqual(await steps(), ["plan", "chapter", "draft", "edit"]);
    await anna.find(".graph a:has-text('chapter')").click();
    await until("the group is shown", async () => (await steps()).join() === "draft,edit");
    await anna.sees("#live:text('● live')");
    await anna.isAccessible();
    // The view updates there.
    const { questions } = await client.ask("GET", "questions?limit=100");
    const { child_id, number } = questions.find(({ trace_id }) => trace_id === book);
    await client.ask("POST", `runs/${book}/contexts/${child_id}/answers/${number}`, { answer: "yes" });
    await until("both steps are done", async () => (await anna.count(".graph .card.good")) === 2);
    await anna.sees("#head .mark.good");
    assert.deepEqual(await steps(), ["draft", "edit"]);
    await anna.find(".graph a:has-text('edit')").click();
    await anna.sees("h1:text('edit')");
    await anna.page.goBack();
    await link("The whole graph").click();
    await until("the whole graph is shown", async () => (await steps()).join() === "plan,chapter,draft,edit");

    // Money: the view of an agent with children, and of an agent without.
    await client.apply(LEAF);
    const tree = await client.finish({ goal: "grow", agent_id: "tree", child_id: "t", max_cost_usd: 1, inputs: { depth: 2, width: 2, leaf: "spend", usd: 0.01 } });
    await anna.go(`runs/${tree}/money`, "#part .books");
    const bars = () => anna.find("#part .books a").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label").split(":")[0]));
    assert.deepEqual((await bars()).sort(), ["t", "t-1", "t-1-1", "t-1-2", "t-2", "t-2-1", "t-2-2"]);
    const bar = (child) => anna.find(`#part .books a[aria-label^='${child}:']`);
    await bar("t-2").click();
    await until("the part of the graph is shown", async () => (await bars()).sort().join() === "t-2,t-2-1,t-2-2");
    await anna.sees("#part a:text-is('t-2')");
    await anna.isAccessible();
    await bar("t-2-1").click();
    await anna.sees("h1:text('t-2-1')");
    await anna.page.goBack();
    await link("The whole run").click();
    await until("the whole graph is shown again", async () => (await bars()).length === 7);
    await anna.leave();
}
