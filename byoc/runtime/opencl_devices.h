// SPDX-License-Identifier: Apache-2.0
//
// The OpenCL devices of this machine, as TVM's OpenCL runtime has them.
#ifndef COLLAGE_OPENCL_DEVICES_H_
#define COLLAGE_OPENCL_DEVICES_H_

#include <string>

namespace collage {
namespace opencl {

// Makes sure that device `index` is there; TVM's device with that number is it from now on. GPUs are taken
// where there are any, all other devices where not. Throws std::runtime_error that says what is missing and
// what to do.
void RequireDevice(int index);

// What is known of the devices: a JSON array of
//
//     {"name": "...", "version": "OpenCL 3.0 PoCL", "driver": "3.1", "units": 2, "memory_bytes": 21300981760}
//
// Throws as RequireDevice(0) does.
std::string DescribeDevices();

// Regions of this process leave out the copies of their inputs and outputs from now on, and do not wait for
// the device: for who times their kernels. Their outputs are not what they should be then.
void LeaveOutCopies(bool on);
bool CopiesAreLeftOut();

}  // namespace opencl
}  // namespace collage

#endif  // COLLAGE_OPENCL_DEVICES_H_
