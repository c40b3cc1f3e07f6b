// SPDX-License-Identifier: Apache-2.0
#ifndef EMULATED_THREADS_H_
#define EMULATED_THREADS_H_

// One kernel over a grid of blocks. The caller sees to it that one runs at a time. `waits` says that its
// threads wait for one another. False where they wait for what never comes.
bool RunGrid(void (*kernel)(void** arguments), void** arguments, const unsigned int grid[3],
             const unsigned int block[3], bool waits);

#endif  // EMULATED_THREADS_H_
