// SPDX-License-Identifier: Apache-2.0
import * as newest from "e2b";
import * as older from "e2b-2.14";
import { runTable } from "./daemon.mjs";
import { rows } from "./table.mjs";

const variables = { apiUrl: "E2B_API_URL", sandboxUrl: "E2B_SANDBOX_URL", apiKey: "E2B_API_KEY" };
runTable({
  client: "e2b (JavaScript)", version: "2.51.0", variables,
  table: rows(newest, { newest: true, network: true, closeStdin: true, lifecycle: true }),
});
runTable({
  client: "e2b (JavaScript)", version: "2.14.1", variables, oneTier: true, table: rows(older, { network: true, lifecycle: true }),
});
