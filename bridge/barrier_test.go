// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStaleBitsInCMemoryAreNotMarked calls with large byte strings, whose addresses stay behind in the C memory of
// frames, while garbage is collected all the time and the memory of the strings becomes that of small objects. A
// pointer written over such an address by a plain Go assignment has the collector mark what is there now, and the
// runtime ends the process ("marked free object in span").
func TestStaleBitsInCMemoryAreNotMarked(t *testing.T) {
	needTVM(t)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Add(1)
	go func() {
		defer others.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	var small [][]byte
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		b := make([]byte, 2*pinThreshold)
		b[0] = 'x'
		v, err := Global("runtime.String", b)
		require.NoError(t, err)
		v.Release()
		b = nil
		small = small[:0]
		for range 256 {
			small = append(small, make([]byte, 128))
		}
	}
	close(stop)
	others.Wait()
	runtime.KeepAlive(small)
}
