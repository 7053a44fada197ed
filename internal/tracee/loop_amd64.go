package tracee

// loopRounds bounds the loop of a child that waits: several seconds, when an attach takes milliseconds. Each round pauses. A child whose
// tracer does not come, because it died say, goes on by itself, with its registers, flags and signals as they were.
const loopRounds = 1 << 28
