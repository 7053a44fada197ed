package listing

import (
	"fmt"

	"kprobe/arch"
)

// Planned is a line of what registering a probe would do. What is not known is left out.
func Planned(place string, at arch.Addr, bytes []byte, verdict, engine, jump, trap, reason string) string {
	line := place
	add := func(known bool, format string, v any) {
		if known {
			line += fmt.Sprintf("  "+format, v)
		}
	}
	add(at != 0, "%v", at)
	add(len(bytes) != 0, "% x", bytes)
	add(true, "%s", verdict)
	add(engine != "", "%s", engine)
	add(jump != "", "jump %s", jump)
	add(trap != "", "trap %s", trap)
	add(reason != "", "(%s)", reason)
	return line
}
