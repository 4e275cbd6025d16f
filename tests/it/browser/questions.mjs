// Questions are answered in all their forms. Of two answers the first applies, and the second
// person is notified.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

export default async function questions(place) {
    const { client } = place;
    const ask = async (question, form = {}) => {
        const trace = await client.submit({ goal: question, agent_id: "ask", child_id: "asks", inputs: { question, form } });
        await client.reaches(trace, "input_required");
        return trace;
    };
    const [anna, bert] = [await Person.enter(place, place.tokens.anna), await Person.enter(place, place.tokens.bert)];
    const card = (person, question) => person.find(`.card:has(h2:text-is('${question}'))`);
    const result = (trace) => until(`${trace} has ended`, async () => (await client.run(trace)).outcome?.result);

    // Two people have the same question open.
    const trace = await ask("Red or blue?", { choices: ["red", "blue"] });
    for (const person of [anna, bert]) await person.go("questions", "h2:text-is('Red or blue?')");
    assert.match(await anna.replying(undefined, () => card(anna, "Red or blue?").locator("button:text('red')").click()), /Answer “red”\?/);
    await bert.replying("", () => card(bert, "Red or blue?").locator("button:text('blue')").click());
    await bert.sees(".told:has-text('Answered')");
    assert.equal(await bert.find(".answers:has(.told:text('Answered')) form").first().isVisible(), false, "an answered question is removed");
    assert.ok(await card(bert, "Red or blue?").locator("button:text('red')").isDisabled(), "an answered question has disabled buttons");
    assert.equal(await result(trace), "blue");
    anna.allow("status of 4");
    await anna.replying("", () => card(anna, "Red or blue?").locator("button:text('red')").click());
    const told = card(anna, "Red or blue?").locator(".told");
    await until("the page shows the message", async () => (await told.textContent()) !== "");
    assert.doesNotMatch(await told.textContent(), /Answered/);
    assert.doesNotMatch(await told.textContent(), /can't be reached/);
    assert.equal(await result(trace), "blue");
    await anna.isAccessible();

    // In words, as JSON, and in fields.
    for (const [question, form, answer] of [["How?", {}, "Slowly\nand well"], ["Which ones?", { schema: { type: "array" } }, '["a","b"]']]) {
        const asked = await ask(question, form);
        await anna.go("questions", `h2:text-is('${question}')`);
        await card(anna, question).locator("textarea").fill(answer);
        await anna.replying("", () => card(anna, question).locator("button").click());
        await anna.sees(".told:has-text('Answered')");
        const told = await result(asked);
        assert.equal(typeof told === "string" ? told : JSON.stringify(told), answer);
    }
    const schema = { type: "object", required: ["day", "guests"], properties: {
        day: { type: "string", maxLength: 20, title: "Which day?" }, guests: { type: "integer", minimum: 1 }, outside: { type: "boolean" },
        dish: { enum: ["fish", "none"] }, note: { type: "string" },
    } };
    const feast = await ask("Which feast?", { schema });
    await anna.go("questions", "h2:text-is('Which feast?')");
    const one = (label) => card(anna, "Which feast?").getByLabel(label);
    await one("Which day?").fill("Sunday");
    await one("guests").fill("7");
    await one("outside").selectOption("yes");
    await anna.isAccessible();
    const send = () => card(anna, "Which feast?").locator("form.fields button").click();
    await anna.replying("", send);
    await anna.sees(".told:has-text('Answered')");
    assert.deepEqual(JSON.parse(await result(feast)), { day: "Sunday", guests: 7, outside: true });
    // After an answer in words, a later question appears on the same page.
    await anna.page.evaluate(() => { document.isTheSame = true; });
    await ask("And then?");
    await anna.sees("h2:text-is('And then?')");
    assert.ok(await anna.page.evaluate(() => document.isTheSame));
    // An approval, and a denial with a reason.
    for (const [button, reason, verdict] of [["approve", "", "succeeded"], ["deny", "too late", "denied by anna: too late"]]) {
        const question = `May I? ${button}`;
        const asked = await client.submit({ name: "approval", steps: [{ id: "release", approve: { who: "the editor", question } }] });
        await client.reaches(asked, "input_required");
        await anna.go("questions", `h2:text-is('${question}')`, "text=For the editor");
        await card(anna, question).locator("input").fill(reason);
        await anna.replying("", () => card(anna, question).locator(`button:text('${button}')`).click());
        await anna.sees(".told:has-text('Answered')");
        const { graph } = await until("the run has ended", async () => (await client.run(asked)).outcome);
        assert.ok([graph.verdict, graph.steps[0].reason].includes(verdict), JSON.stringify(graph));
    }
    // An answer that does not fit shows its mistake, and can be corrected.
    const number = await ask("How many more?", { schema: { type: "integer" } });
    await anna.go("questions", "h2:text-is('How many more?')");
    const asked = card(anna, "How many more?");
    await asked.locator("summary:text('Write it as JSON')").click();
    await asked.locator("textarea").fill("many");
    await anna.replying("", () => asked.locator("button").last().click());
    await until("the page shows the mistake", async () => !/^$|Answered/.test(await asked.locator(".told").textContent()));
    await asked.locator("input[type=number]").fill("8");
    await anna.replying("", () => asked.locator("form.fields button").click());
    await anna.sees(".told:has-text('Answered')");
    assert.equal(String(await result(number)), "8");
    await Promise.all([anna.leave(), bert.leave()]);
}
