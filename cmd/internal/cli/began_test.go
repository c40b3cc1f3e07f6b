// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The host's time begins where that of the program began that handed over to it; a moment of another process is not
// taken.
func TestTimeBeginsWithTheProgram(t *testing.T) {
	program := newSession(os.Stdout, os.Stderr)
	program.began = time.Now().Add(-3 * time.Second)
	name, value, _ := strings.Cut(program.beganSetting(), "=")
	host := newSession(os.Stdout, os.Stderr)
	host.adoptBegan()
	assert.Less(t, time.Since(host.began), time.Second)

	t.Setenv(name, value)
	host.adoptBegan()
	assert.True(t, host.began.Equal(program.began), host.began)

	for _, other := range []string{fmt.Sprint(os.Getpid()+1, " ", program.began.UnixNano()), "now",
		fmt.Sprint(os.Getpid(), " soon"),
		fmt.Sprint(os.Getpid(), " ", time.Now().Add(time.Hour).UnixNano())} {
		t.Setenv(name, other)
		host = newSession(os.Stdout, os.Stderr)
		host.adoptBegan()
		assert.Less(t, time.Since(host.began), time.Second, other)
		assert.GreaterOrEqual(t, time.Since(host.began), time.Duration(0), other)
	}
}
