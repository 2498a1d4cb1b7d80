// SPDX-License-Identifier: Apache-2.0
// Prints what the TypeScript SDK says about the API, as JSON: its routes, error codes and the shape of each interface.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const sdk = fileURLToPath(new URL("../../sdk/typescript/", import.meta.url));
const require = createRequire(sdk);
const ts = require("typescript");
const { routes } = await import(sdk + "dist/esm/routes.js");
const { errorClasses } = await import(sdk + "dist/esm/errors.js");
const { toSnake } = await import(sdk + "dist/esm/names.js");

const file = sdk + "src/types.ts";
const program = ts.createProgram([file], { strict: true, exactOptionalPropertyTypes: true, target: ts.ScriptTarget.ES2022 });
const checker = program.getTypeChecker();

function shape(type) {
  const parts = type.isUnion() ? type.types : [type];
  const real = parts.filter((t) => !(t.flags & (ts.TypeFlags.Null | ts.TypeFlags.Undefined)));
  const out = { nullable: parts.some((t) => t.flags & ts.TypeFlags.Null) };
  const literals = real.filter((t) => t.isStringLiteral()).map((t) => t.value);
  if (literals.length === real.length) return { ...out, type: "string", enum: literals.sort() };
  if (real.every((t) => t.flags & ts.TypeFlags.BooleanLike)) return { ...out, type: "boolean" };
  if (real.length > 1) return { ...out, type: "any" };
  const [one] = real;
  if (one.flags & ts.TypeFlags.String) return { ...out, type: "string" };
  if (one.flags & ts.TypeFlags.Number) return { ...out, type: "number" };
  if (checker.isArrayType(one)) return { ...out, type: "array", item: shape(checker.getTypeArguments(one)[0]) };
  if (one.getStringIndexType()) return { ...out, type: "object" };
  return { ...out, type: "object", fields: fields(one) };
}

function fields(type) {
  return Object.fromEntries(type.getProperties().map((property) => {
    const optional = (property.flags & ts.SymbolFlags.Optional) !== 0;
    return [toSnake(property.name), { optional, ...shape(checker.getTypeOfSymbol(property)) }];
  }));
}

const module = checker.getSymbolAtLocation(program.getSourceFile(file));
const types = {};
for (const symbol of checker.getExportsOfModule(module)) {
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  if (symbol.flags & ts.SymbolFlags.Interface || symbol.name === "Limits") types[symbol.name] = fields(type);
}
console.log(JSON.stringify({ routes, codes: Object.keys(errorClasses), types }));
