package pid

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// stopEvent names the event by which this process can be asked to stop. A
// process without a console hears no signal of Windows, and one that shares
// a console cannot be asked alone: CTRL_BREAK for a number that leads no group
// there goes to everybody in the console.
func (id ID) stopEvent() (*uint16, error) {
	// Global: the caller may be in another session (a service, ssh).
	return windows.UTF16PtrFromString(`Global\prun-stop-` + id.String())
}

// OnStop makes a Signal other than SIGKILL, sent to this process by another one
// with this package, a call of fn instead of the process's end. It lasts as long
// as the process. Windows only: elsewhere os/signal is the means.
func OnStop(fn func()) error {
	name, err := Self().stopEvent()
	if err != nil {
		return err
	}
	// An event that is there already is somebody else's, and not listened to.
	event, err := windows.CreateEvent(nil, 0, 0, name)
	if err != nil {
		if event != 0 {
			windows.CloseHandle(event)
		}
		return fmt.Errorf("make stop event: %w", err)
	}
	go func() {
		for {
			if e, err := windows.WaitForSingleObject(event, windows.INFINITE); err != nil || e != windows.WAIT_OBJECT_0 {
				return
			}
			fn()
		}
	}()
	return nil
}

// ask reports whether the process has a stop event, which is then set.
func (id ID) ask() bool {
	name, err := id.stopEvent()
	if err != nil {
		return false
	}
	event, err := windows.OpenEvent(windows.EVENT_MODIFY_STATE, false, name)
	if err != nil {
		return false
	}
	defer windows.CloseHandle(event)
	return windows.SetEvent(event) == nil
}
