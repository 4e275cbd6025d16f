// Measurements for the scripts of figures: the time until a page is painted, the bytes that arrive
// while it is open, and the work that they cause.
import { readFileSync } from "node:fs";
import { Person } from "./page.mjs";

/** Measures the page and prints the figures. */
export class Measure {
    bytes = 0;

    static async begin(place) {
        const measure = new Measure();
        const anna = await Person.enter(place, place.tokens.anna);
        const cdp = await anna.context.newCDPSession(anna.page);
        Object.assign(measure, { anna, cdp, base: place.url });
        await Promise.all(["Performance", "Network"].map((domain) => cdp.send(`${domain}.enable`)));
        cdp.on("Network.dataReceived", ({ dataLength }) => { measure.bytes += dataLength; });
        return measure;
    }

    say(what, value) {
        console.log(`${what.padEnd(66)} ${value}`);
    }

    told({ paint, answer, bytes }) {
        return `${paint} ms (first byte ${answer} ms), ${Math.round(bytes / 1024)} KiB`;
    }

    async heap() {
        const asked = async (name) => (await this.cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === name).value;
        await this.cdp.send("HeapProfiler.collectGarbage");
        return `${((await asked("JSHeapUsedSize")) / 2 ** 20).toFixed(1)} MiB, ${await asked("Nodes")} nodes`;
    }

    /** The memory of the gateway. */
    memory() {
        return `${Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.env.TRELLIS_BENCH_PID}/status`, "utf8"))[1]) / 1024)} MiB`;
    }

    async painted() {
        return await this.anna.page.evaluate(async () => {
            while (!performance.getEntriesByName("first-contentful-paint").length) await new Promise((drawn) => requestAnimationFrame(drawn));
            const [visit] = performance.getEntriesByType("navigation");
            return { paint: Math.round(performance.getEntriesByName("first-contentful-paint")[0].startTime), answer: Math.round(visit.responseStart), bytes: visit.encodedBodySize };
        });
    }

    /** The fastest page of the same server and browser: one without data. */
    async floor() {
        await this.anna.go("");
        this.anna.allow("status of 404");
        await this.anna.page.goto(`${this.base}runs/${"0".repeat(31)}1`);
        this.say("the floor, a page without data: first paint, page", this.told(await this.painted()));
    }

    /** Prints the bytes that arrive while a page is open, and the longest block of the browser. */
    async watched(what, lasts, also = async () => "") {
        await this.anna.page.evaluate(() => { window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ type: "longtask" }); });
        this.bytes = 0;
        await new Promise((woken) => setTimeout(woken, lasts));
        this.say(`${what}: bytes a second`, `${(this.bytes * 1000 / lasts / 1024).toFixed(1)} KiB${await also()}`);
        this.say(`${what}: longest block of the browser`, `${Math.round(await this.anna.page.evaluate(() => window.longest))} ms`);
    }
}
