// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"time"
)

// beganEnv tells the Python host when the program began that handed over to it: what a user asks for in time begins
// there, and starting Python and loading TVM takes seconds of it. Beside the moment stands the process, which exec does
// not change.
const beganEnv = "COLLAGE_BEGAN"

// beganSetting is the variable as the host gets it.
func (s *Session) beganSetting() string {
	return fmt.Sprintf("%s=%d %d", beganEnv, os.Getpid(), s.began.UnixNano())
}

// adoptBegan takes the moment over from the program that handed over to this process, if one did.
func (s *Session) adoptBegan() {
	var process int
	var moment int64
	if n, _ := fmt.Sscanf(os.Getenv(beganEnv), "%d %d", &process, &moment); n != 2 || process != os.Getpid() {
		return
	}
	if began := time.Unix(0, moment); began.Before(s.began) {
		s.began = began
	}
}
