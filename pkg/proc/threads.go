package proc

import (
	"runtime"
	"sync"
)

func premakeThreads(n int) {
	var all, gone sync.WaitGroup
	release := make(chan struct{})
	for range n {
		all.Add(1)
		gone.Add(1)
		go func() {
			// A locked goroutine holds a thread even while it waits; unlocked,
			// the thread idles and is never given back.
			runtime.LockOSThread()
			defer gone.Done()
			defer runtime.UnlockOSThread()
			all.Done()
			<-release
		}()
	}
	all.Wait()
	close(release)
	gone.Wait()
}
