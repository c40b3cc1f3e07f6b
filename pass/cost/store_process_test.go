// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
)

// TestMain lets the test binary be one of several processes that write one store.
func TestMain(m *testing.M) {
	switch os.Getenv("COST_TEST_ROLE") {
	case "writer":
		writerProcess()
	case "full-disk":
		fullDiskProcess()
	default:
		os.Exit(m.Run())
	}
}

func roleCommand(role string, arguments ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), "COST_TEST_ROLE="+role)
	command.Stderr = os.Stderr
	return command
}

// writerProcess writes records first .. first+count-1 to the store and says each one on stdout once it is written.
func writerProcess() {
	path := os.Args[1]
	first, _ := strconv.Atoi(os.Args[2])
	count, _ := strconv.Atoi(os.Args[3])
	s, err := OpenStore(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := first; i < first+count; i++ {
		if err := s.Put(testKey(i), testCost(i)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
	os.Exit(0)
}

func TestSeveralProcessesWriteAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	const processes, each = 6, 200
	var group sync.WaitGroup
	for p := range processes {
		group.Go(func() {
			assert.NoError(t, roleCommand("writer", path, strconv.Itoa(p*each), strconv.Itoa(each)).Run())
		})
	}
	// Goroutines of this process beside them.
	own := openStore(t, path)
	for g := range 4 {
		group.Go(func() {
			for i := range 50 {
				assert.NoError(t, own.Put(testKey(100_000+g*50+i), testCost(i)))
			}
		})
	}
	group.Wait()
	s := openStore(t, path)
	problems, _ := s.Problems()
	assert.Empty(t, problems)
	assert.Equal(t, processes*each+200, s.Len())
	for i := range processes * each {
		c, found := s.Lookup(testKey(i))
		require.True(t, found, "record %d", i)
		require.Equal(t, testCost(i).Samples, c.Samples)
	}
	require.NoError(t, own.Refresh())
	assert.Equal(t, s.Len(), own.Len(), "each process sees the others' records")
}

func TestKilledWritersLoseNothingThatTheyWrote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	rng := rand.New(rand.NewPCG(3, 4))
	said := map[int]bool{}
	for round := range int(rounds.Seeds(12)) {
		writer := roleCommand("writer", path, strconv.Itoa(round*100_000), "100000")
		stdout, err := writer.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		// It has written something, however slow the machine is, and is at it.
		output := make([]byte, 1)
		_, err = io.ReadFull(stdout, output)
		require.NoError(t, err)
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		require.NoError(t, writer.Process.Kill())
		rest, err := io.ReadAll(stdout)
		require.NoError(t, err)
		_ = writer.Wait()
		lines := strings.SplitAfter(string(append(output, rest...)), "\n")
		for _, line := range lines[:len(lines)-1] {
			i, err := strconv.Atoi(strings.TrimSpace(line))
			require.NoError(t, err)
			said[i] = true
		}
		// What a kill in the middle of a write would leave.
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
		require.NoError(t, err)
		torn, err := encodeRecord(testKey(-1), testCost(1))
		require.NoError(t, err)
		_, err = file.Write(torn[:rng.IntN(len(torn)-1)])
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	require.NotEmpty(t, said)
	s := openStore(t, path)
	require.NoError(t, s.Put(testKey(-2), testCost(2)))
	s = openStore(t, path)
	problems, _ := s.Problems()
	assert.Empty(t, problems)
	for i := range said {
		_, found := s.Lookup(testKey(i))
		require.True(t, found, "record %d", i)
	}
}

// fullDiskProcess writes under a limit on the file's size, which cuts a write short as a full disk does.
func fullDiskProcess() {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := OpenStore(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	limit := syscall.Rlimit{Cur: 1000, Max: 1 << 40}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	failed := 0
	for i := range 5 {
		if err := s.Put(testKey(i), testCost(i)); err != nil {
			failed++
			fmt.Println(err)
		}
	}
	for i := range 5 {
		if _, found := s.Lookup(testKey(i)); !found {
			fmt.Println("record", i, "is not in memory")
			os.Exit(1)
		}
	}
	if failed == 0 || failed == 5 {
		fmt.Println("failed writes:", failed)
		os.Exit(1)
	}
	info, _ := os.Stat(os.Args[1])
	content, _ := os.ReadFile(os.Args[1])
	if len(content) == 0 || content[len(content)-1] != '\n' {
		fmt.Println("a part of a record was left behind; size", info.Size())
		os.Exit(1)
	}
	// Space comes back: what could not be written is written.
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestAFullDiskIsAnErrorAndNothingIsLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "costs.jsonl")
	command := roleCommand("full-disk", path)
	output, err := command.Output()
	require.NoError(t, err, string(output))
	assert.Contains(t, string(output), "writing the cost store "+path)
	s := openStore(t, path)
	assert.Equal(t, 5, s.Len())
	problems, _ := s.Problems()
	assert.Empty(t, problems)
}
