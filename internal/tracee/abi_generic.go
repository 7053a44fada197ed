//go:build linux && (arm64 || riscv64)

package tracee

// frameForm is empty: a signal frame is the same for all programs.
type frameForm struct{}
