//go:build linux && (arm64 || ppc64le || riscv64 || s390x)

package tracee

// loopRounds is as on amd64, but no round pauses: several seconds in an emulator.
const loopRounds = 1 << 30
