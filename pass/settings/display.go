// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"encoding/json"
	"os"
	"sync/atomic"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/progress"
)

// What Python has registered where it is the host (python/collage/log.py).
const (
	// ListenFunction takes Config.Listener and a progress.Event as JSON. An error ends what is being done.
	ListenFunction = "collage.host.progress"
	// LogFunction takes a level of Python's logging ("warning") and a text, for the logger "collage".
	LogFunction = "collage.host.log"
)

// Display gives what shows progress, as ShowProgress and Listener say, and sets Context where it is nil. Where the
// listener fails (a function of Python's that raises), Context ends, and heard puts its error in the place of the one
// that comes of that. Call heard once, when all is done.
func (c *Config) Display() (shown *progress.Printer, heard func(error) error) {
	shown = progress.New(os.Stderr, !c.ShowProgress, false)
	if c.Context == nil {
		c.Context = context.Background()
	}
	if c.Listener == "" {
		return shown, func(err error) error { return err }
	}
	ctx, end := context.WithCancel(c.Context)
	c.Context = ctx
	name := c.Listener
	var failed atomic.Pointer[error]
	shown.To(func(e progress.Event) {
		if failed.Load() != nil {
			return
		}
		text, err := json.Marshal(e)
		if err == nil {
			_, err = bridge.Global(ListenFunction, name, string(text))
		}
		if err != nil {
			failed.Store(&err)
			end()
		}
	})
	return shown, func(err error) error {
		end()
		if first := failed.Load(); first != nil {
			return *first
		}
		return err
	}
}
