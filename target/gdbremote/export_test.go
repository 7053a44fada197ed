package gdbremote

// Vanish ends the connection as a client does that is killed.
func Vanish(t *Target) { t.c.fail(errVanished) }

var errVanished = errorString("the test's client has vanished")

type errorString string

func (e errorString) Error() string { return string(e) }
