// SPDX-License-Identifier: Apache-2.0
import * as novita from "novita-sandbox";
import { runTable } from "./daemon.mjs";
import { rows } from "./table.mjs";

const variables = { apiUrl: "NOVITA_API_URL", sandboxUrl: "NOVITA_SANDBOX_URL", apiKey: "NOVITA_API_KEY" };
runTable({
  client: "novita-sandbox (JavaScript)", version: "2.1.1", variables, oneTier: true, table: rows(novita, { novita: true }),
});
