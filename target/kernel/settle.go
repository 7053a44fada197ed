package kernel

import (
	"errors"
	"time"

	"kprobe/target"
)

// settle lets the machine run, a little at a time, until something holds while it stands. Nothing
// of it is reported: the caller has to lead on threads that stand at a breakpoint of ours.
func (t *Target) settle(holds func() bool) error {
	const most = 5_000 // times: a busy host runs the machine seldom, and so they take longer there
	for times := 0; !holds(); times++ {
		if times == most {
			return errors.New("it does not come to rest")
		}
		alarm := time.AfterFunc(time.Millisecond, func() { t.Wake() })
		first, err := t.Target.Wait()
		alarm.Stop()
		var stops []target.Stop
		if err == nil {
			stops, err = t.Target.Freeze()
		}
		for _, st := range append(stops, first) {
			if err == nil && st.Kind == target.StopTrap {
				err = t.Target.Resume(st.Thread, 0)
			}
		}
		if err = errors.Join(err, t.Target.Thaw()); err != nil {
			return err
		}
	}
	return nil
}
