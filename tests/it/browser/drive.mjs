// node drive.mjs --url URL [--quick] SCRIPT…: runs scripts in one browser, one after the other,
// against the page at URL, and stops at the first failure.
// A line `ask …` on stdout requests an action on the server from the parent process; the answer is
// a line on stdin.
// --quick: skips checks that do not depend on the deployment.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Client, launch } from "./page.mjs";

const { values: { url, quick: isQuick }, positionals: scripts } = parseArgs({ allowPositionals: true, options: { url: { type: "string" }, quick: { type: "boolean" } } });
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await launch();

/** The address of the page, and the people who may sign in. */
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
    for (const person of browser.people) if (person.faults.length) console.log(`faults in a browser: ${person.faults.join("\n")}`);
    process.exit(1);
}
await browser.close();
process.exit(0);
