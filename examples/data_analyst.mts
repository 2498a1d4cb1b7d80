// SPDX-License-Identifier: Apache-2.0
// A data analyst: a CSV goes in, Python computes in a sandbox, a chart comes back. Needs @glovebox/sdk.
//
//   npx tsc --module nodenext --target es2022 --lib es2022,esnext.disposable data_analyst.mts && node data_analyst.mjs chart.png
import { writeFileSync } from "node:fs";
import { Sandbox } from "@glovebox/sdk";

const sales = [
  ["month", "region", "amount"],
  ...["Jan", "Feb", "Mar", "Apr", "May", "Jun"].flatMap((month, at) => [
    [month, "north", String(100 + 40 * at)],
    [month, "south", String(300 - 30 * at)],
  ]),
];

// What a model would write. The template `base` has Python alone, so the chart is drawn by hand; `interpreter` has matplotlib.
const program = `
import csv, json, struct, zlib
from collections import defaultdict

totals = defaultdict(lambda: defaultdict(int))
with open("sales.csv", newline="") as file:
    for row in csv.DictReader(file):
        totals[row["month"]][row["region"]] += int(row["amount"])

WIDTH, HEIGHT, COLOURS = 480, 240, {"north": (31, 119, 180), "south": (255, 127, 14)}
image = [[(255, 255, 255)] * WIDTH for _ in range(HEIGHT)]
highest = max(amount for regions in totals.values() for amount in regions.values())
for group, regions in enumerate(totals.values()):
    for bar, (region, amount) in enumerate(sorted(regions.items())):
        left = group * WIDTH // len(totals) + 12 + bar * 28
        for y in range(HEIGHT - amount * (HEIGHT - 20) // highest, HEIGHT):
            image[y][left:left + 24] = [COLOURS[region]] * 24

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

rows = b"".join(b"\\0" + bytes(value for pixel in row for value in pixel) for row in image)
with open("chart.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)))
    file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
print(json.dumps({region: sum(regions[region] for regions in totals.values()) for region in COLOURS}))
`;

interface Totals {
  north: number;
  south: number;
}

await using sandbox = await Sandbox.create({ limits: { memoryMb: 512 } });
await sandbox.files.write("sales.csv", sales.map((row) => row.join(",") + "\n").join(""));
await sandbox.files.write("analyse.py", program);
const result = await sandbox.exec(["python3", "analyse.py"], { timeoutMs: 60_000, check: true });
const totals = JSON.parse(result.stdout) as Totals;
const chart = await sandbox.files.read("chart.png");

const target = process.argv[2] ?? "chart.png";
writeFileSync(target, chart);
console.log(`north ${totals.north}, south ${totals.south}; ${target}: ${chart.length} bytes, in ${result.durationMs} ms`);
