package settings

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// CPUs is how many processors the system may have.
func CPUs() uint64 {
	text, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err == nil {
		last := strings.TrimSpace(string(text))
		last = last[strings.LastIndexAny(last, "-,")+1:]
		if n, err := strconv.ParseUint(last, 10, 16); err == nil {
			return n + 1
		}
	}
	return uint64(runtime.NumCPU())
}
