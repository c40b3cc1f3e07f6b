// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/byoc"
)

// probed counts how often it is asked for its library.
type probed struct {
	byoc.Backend
	asked *int
}

func (p probed) Name() string { return "probed" }

func (p probed) Probe() byoc.Probe {
	*p.asked++
	return byoc.Probe{Usable: true, Library: "oneDNN", Version: "2.6.0", Features: []string{"avx512_core"}}
}

func TestABackendIsAskedForItsLibraryOnce(t *testing.T) {
	t.Parallel()
	asked := 0
	s, b := &Module{}, probed{asked: &asked}
	for range 3 {
		assert.Equal(t, "oneDNN 2.6.0 avx512_core", s.Library(b))
	}
	assert.Equal(t, 1, asked)
}
