package kernel

import (
	"errors"
	"time"
)

// settle lets the machine run, a little at a time, until something holds while it stands. Nothing of it is
// reported: there are no breakpoints of ours.
func (t *Target) settle(holds func() bool) error {
	const patience = 10 * time.Second
	for end := time.Now().Add(patience); !holds(); {
		if time.Now().After(end) {
			return errors.New("it does not come to rest")
		}
		alarm := time.AfterFunc(time.Millisecond, t.Wake)
		_, err := t.Target.Wait()
		alarm.Stop()
		if err == nil {
			_, err = t.Target.Freeze()
		}
		if err = errors.Join(err, t.Target.Thaw()); err != nil {
			return err
		}
	}
	return nil
}
