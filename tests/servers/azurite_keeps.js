// Loaded by node before Azurite: its collector of bytes that no blob names has no option, runs every ten minutes, and
// with ten thousands of blobs answers nothing for minutes.
const path = require("path");
const constants = require(path.join(path.dirname(process.argv[1]), "blob", "utils", "constants"));

constants.DEFAULT_GC_INTERVAL_MS = 2 ** 31 - 1;
