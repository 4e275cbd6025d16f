// node drive.mjs --url URL [--quick] SCRIPT…: runs scripts in one browser, one after the other, against the page at URL. The first that fails is the last. A line
// `ask …` on stdout asks whoever started it to do something about the server; the answer is a line on stdin.
// Quick: what is the same wherever the page stands is left out.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Client, launch } from "./page.mjs";

const { values: { url, quick: isQuick }, positionals: scripts } = parseArgs({ allowPositionals: true, options: { url: { type: "string" }, quick: { type: "boolean" } } });
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await launch();

/** Where the page is, and who may sign in there. */
const place = {
    url,
    browser,
    isQuick,
    tokens: { anna: "anna-token", bert: "bert-token", olga: "olga-token" },
    client: new Client(url, "anna-token"),
    async ask(words) {
        console.log(`ask ${words}`);
        return (await answers.next()).value;
    },
};

try {
    for (const name of scripts) {
        const began = performance.now();
        const { default: script } = await import(`./${name}.mjs`);
        await script(place);
        console.log(`${name}: ${Math.round(performance.now() - began)} ms`);
    }
} catch (error) {
    console.log(error.stack);
    for (const person of browser.people) if (person.faults.length) console.log(`somebody saw ${person.faults.join("\n")}`);
    process.exit(1);
}
await browser.close();
process.exit(0);
