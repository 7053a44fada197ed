package names

import "testing"

func TestANameOutlivesItsThread(t *testing.T) {
	var n Names
	for _, tt := range []struct {
		tid        int
		name, want string
	}{{1, "a", "a"}, {2, Forgotten, Forgotten}, {1, Forgotten, "a"}, {1, "b", "b"}, {1, Forgotten, "b"}} {
		if got := n.Last(tt.tid, tt.name); got != tt.want {
			t.Errorf("thread %d, called %q: %q, want %q", tt.tid, tt.name, got, tt.want)
		}
	}
}
