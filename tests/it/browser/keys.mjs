// The page without a mouse.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

export default async function keys(place) {
    const { client } = place;
    for (const goal of ["Key one", "Key two", "Key three"]) await client.finish({ goal, agent_id: "echo", labels: { part: "keys" } });
    const anna = await Person.enter(place, place.tokens.anna);
    const press = (key) => anna.page.keyboard.press(key);
    const at = () => anna.page.evaluate(() => document.activeElement.textContent);
    await anna.go("?label=part%3Dkeys", ".run .goal:text('Key three')");
    await press("/");
    assert.equal(await anna.page.evaluate(() => document.activeElement.id), "search");
    // Inside a field a key types a letter.
    await press("j");
    assert.equal(await anna.find("#search").inputValue(), "j");
    await anna.find("#search").blur();
    for (const [key, goal] of [["j", "Key three"], ["j", "Key two"], ["k", "Key three"], ["k", "Key three"], ["j", "Key two"], ["j", "Key one"], ["j", "Key one"]]) {
        await press(key);
        assert.equal(await at(), goal);
    }
    await press("Enter");
    await anna.sees("h1:text('Key one')");
    // Escape leads from an agent to its run, then to the list. A further Escape does not leave the
    // page.
    await anna.find(".tree .name").first().click();
    await anna.sees(".way a[data-up]:text('Key one')");
    await press("Escape");
    await anna.sees(".views");
    await press("Escape");
    await anna.sees("h1:text('Runs')");
    await press("Escape");
    await anna.sees("h1:text('Runs')");
    assert.match(await anna.replying("", () => press("?")), /Keys:/);

    const sleeps = await client.submit({ goal: "Sleep", agent_id: "sleep", child_id: "s", inputs: { ms: 3_600_000 } });
    await anna.go(`runs/${sleeps}`, "#live:text('● live')");
    await press("j");
    assert.equal(await at(), "s");
    assert.match(await anna.replying(undefined, () => press("c")), /Cancel “.*”\?/);
    await anna.replying("", () => press("c"));
    await anna.sees("#head .mark:has-text('cancelled')");
    await until("the focus stays on its row", async () => (await at()) === "s");
    // The first link skips the navigation.
    await anna.go("");
    await press("Tab");
    assert.equal(await at(), "To the content");
    await anna.leave();
}
