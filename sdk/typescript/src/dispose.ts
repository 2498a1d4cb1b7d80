// SPDX-License-Identifier: Apache-2.0
// `using` is compiled to these symbols, which Node has from 18.18 and 20 on. They are found at run time, so they must be there first.
type Mutable = { dispose?: symbol; asyncDispose?: symbol };
(Symbol as Mutable).dispose ??= Symbol.for("Symbol.dispose");
(Symbol as Mutable).asyncDispose ??= Symbol.for("Symbol.asyncDispose");

export {};
