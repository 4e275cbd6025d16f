// Dead letters: one is dropped after a confirmation; another is sent again, byte by byte the same.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

export default async function letters(place) {
    const { client } = place;
    const letters = async () => (await client.ask("GET", "dead?kind=cancel")).letters;
    const numbers = async () => (await letters()).map(({ sequence }) => sequence);
    const refused = async (word) => {
        const before = await numbers();
        const message = await place.ask(`nonsense ${word}`);
        const number = await until("the letter is stored", async () => (await numbers()).find((one) => !before.includes(one)));
        return { message, number };
    };
    const [one, other] = [await refused("one"), await refused("other")];
    const anna = await Person.enter(place, place.tokens.anna);
    const row = ({ number }) => anna.find("tr", { has: anna.page.getByRole("button", { name: `Drop letter ${number}`, exact: true }) });
    await anna.go("dead?kind=cancel", ".list");

    const drop = row(one).getByRole("button", { name: "Drop" });
    assert.ok((await anna.replying(undefined, () => drop.click())).startsWith(`Drop letter ${one.number}?`));
    assert.ok((await numbers()).includes(one.number), "a declined confirmation changes nothing");
    await anna.replying("", () => drop.click());
    await row(one).getByText("Done.").waitFor();
    assert.ok(!(await numbers()).includes(one.number));
    assert.ok(await drop.isDisabled(), "a dropped letter has a disabled button");

    const again = row(other);
    await again.locator("summary").click();
    const send = async (text, told) => {
        await again.getByRole("textbox").fill(text);
        assert.match(await anna.replying("", () => again.getByRole("button", { name: "Send again" }).click()), /Send this message again/);
        await again.getByText(told).waitFor();
    };
    anna.allow("status of 409");
    await send(`${other.message} `, "byte by byte");
    assert.ok((await numbers()).includes(other.number));
    await send(other.message, "Sent.");
    assert.ok(await again.getByRole("textbox").isDisabled(), "a sent letter has a disabled text field");
    // It is refused again, as a new letter.
    const { payload } = (await until("the message is refused again", async () => (await letters()).find(({ sequence }) => sequence > other.number))).letter;
    assert.ok(payload.startsWith(`(${other.message.length} bytes`), payload);

    await anna.go("dead?kind=cancel", ".list");
    for (const gone of [one, other]) assert.equal(await row(gone).count(), 0);
    await anna.leave();
}
