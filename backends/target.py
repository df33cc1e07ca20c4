"""What the scheduler knows of machines: the target it schedules for, and its own numbers, all in this one place.

A target has sizes and counts, and no names. The numbers are the same for all targets. They stand in three sections:
what things cost on a machine, what fixes the *order* in which numbers are combined, and *budgets*. Those of the second
section show in the bits of results; the others in speed, and in how long programs take to compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..core.types import Scalar
from .transformations import ALL, Transformations


@dataclass(frozen=True)
class Target:
    """Registers and caches of one core, whether there is more than one, and whether threads come in groups."""

    register_bytes: int
    registers: int  # vector registers
    l1_bytes: int
    l2_bytes: int
    parallel: bool
    multiply_add: bool  # a fused multiply-add costs what a multiplication does
    group: int = 0  # threads that run side by side, share memory and wait for each other; 0: lanes are of vectors
    shared_bytes: int = 0  # memory of a group
    threads: int = 1  # iterations at work at a time, where threads are many and light
    units: int = 1  # that share out a kernel
    atomics: bool = False  # iterations may update the same place
    transformations: Transformations = ALL  # what the scheduler may do for it

    def lanes(self, scalar: Scalar) -> int:
        """How many of these scalars one register holds, at least one; where threads come in groups, those of one."""
        if self.group:
            return self.group
        return max(1, 8 * self.register_bytes // scalar.bits)

    @property
    def start_work(self) -> int:
        """Multiplications that it does in the time that a nest takes to start."""
        return round(LAUNCH_SECONDS / (CYCLE * OPERATION_CYCLES)) * self.units * UNIT_LANES if self.group else 0

    @property
    def untiled_work(self) -> int:
        """Multiplications that one costs more in a sum over several loops than in a product of matrices."""
        return GROUP_UNTILED_COST if self.group else 0


# Machine: what things cost on a processor, whichever it is. Costs choose between loops, and so move bits at times, too.

# Work, in additions of one scalar, unless another unit is named.
THREAD_GRAIN = 200_000  # about what is worth handing a chunk of work to another thread
CALL_WORK = 8 * THREAD_GRAIN  # of a function that is written elsewhere: any amount, also inside a short loop
SELECTABLE_WORK = 60  # of both branches of a cond between scalars that is a selection, at most
CSE_WORTH = 20  # a store and a load: what is computed in one nest for another costs as much
MATERIALISED_WORTH = 32  # what recurs, for an array of it: to write and read an element takes as long
STORED_COST = 64  # multiplications: to store and read again an element of an array that caches do not hold
# Multiplications, where threads come in groups: one that reads its operands from memory, and not from a tile of theirs.
# It is 8 of those of a tile with PoCL, and more than 20 on an H200 (the gradient of gmm, benchmarks/gpu.py).
GROUP_UNTILED_COST = 16
CACHED_ELEMENTS = 1 << 17  # elements of an array that the caches hold
SMALL_ARRAY = 64  # elements of an inner array that stays in registers, iterations of a loop that can be written out
GUARD_COST = 2  # a guard: two comparisons, and a mask that is read by
ACCUMULATOR_COPY_COST = 4  # to clear and to add a scalar of a copy of an accumulator
LIGHT_WRITE_WORK = 16  # threads that write to the same lines wait for these where no more is computed for a write
CONTEST_CLEARED = 1024  # places made ready for each write, at most, where a contest for places is worth it
BORDER_ELEMENTS = 4096  # an array of fewer is copied as a whole where only the border around an update has to be
WHOLE_COPY_READS = 4  # reads for each element of an array, for a copy of the whole array to be worth it
PREFETCH_AHEAD = 128  # iterations: enough for the memory to answer

# What code takes (``cost.py``), in cycles of one thread; ``benchmarks/costs.py`` compares it with what is measured.
CYCLE = 1 / 3e9  # seconds
OPERATION_CYCLES = 0.5  # an addition, or an instruction that reads or writes contiguous elements
GATHER_CYCLES = 1.0  # each element that is read or written by itself
LATENCY_CYCLES = 4.0  # from an addition to the next that needs its result
TURN_CYCLES = 1.0  # an iteration of a loop, besides its body
ENTRY_CYCLES = 10.0  # a loop, besides its iterations
START_SECONDS = 2e-6  # a loop that several threads share
LAUNCH_SECONDS = 10e-6  # a kernel
UNIT_LANES = 16  # iterations of which a unit of a device takes a step at a time
LINE_BYTES = 64
L3_BYTES = 32 << 20  # that are at the disposal of a call
L2_RATE, L3_RATE, MEMORY_RATE = 32.0, 16.0, 10.0  # bytes a cycle from L2, from L3, from memory
SKEWED_BYTES = L3_BYTES // 8  # of blocks of rows that several steps go through, with all that a step reads and writes
SKEWED_STEPS = 4  # so many at least: for fewer the blocks are not worth their loops
FARTHEST_ROW = 64  # from its own, of which a row of the next step is computed, where steps go through blocks
BESIDE = 0.25  # a ratio: the part of what is done beside something longer that shows
STREAMS = 8  # runs of neighbours side by side that a processor fetches ahead
RUN_BYTES, APART = 1024, 2.5  # in shorter runs of neighbours, a line takes so many times as long: nobody fetches ahead

# Costs of a lane, where a contiguous read costs 1.
LANE_SAME_COST = 0.5  # what does not vary with the lane
LANE_TURNED_COST = 1.5  # what is transposed in registers, or is copied to be contiguous and then read again and again
LANE_NEAR_COST = 2.5  # of elements that are a few places apart: rows, of which each lane has its own
LANE_ACROSS_COST = 8.0  # any other read
NEAR = 4  # places, at most, between lanes that are read as rows
LEAST_PERIOD = 64  # lanes after which an index wraps around, at least, if its reads are to count as contiguous
LANE_HALVING_COST = 2.0  # a step of the sum of a register's lanes, which moves half of them, and adds
LANE_LATENCY = 1.5  # a ratio: what it costs more to reduce into one strip at a time
LANE_ELEMENT_COST = 2.0  # to read or write the element of one lane of straight-line code, where it is by itself
SHORT_VECTOR_COST = 6.0  # and to combine the lanes of a short vector
UNROLLING_GAIN = 1.2  # a ratio: by so much straight-line code along lanes must be less work

# Registers and rows.
JAM_COPIES = 4  # iterations of a jam that run side by side
SQUARE_LEAST_BITS = 32  # of a scalar in a square that is transposed: smaller ones have more rows than registers
PACKED_PADDING = 8  # elements after a packed row: rows a power of two apart fall on each other's places in a cache

# Chunks of work.
LANE_CHUNK_WITH_LOOPS = 512  # iterations of a chunk of lanes with loops inside
CHUNK_JAMS = 8  # jams of a piece that threads share out, where the jam is the only other loop
STREAM_ROWS = 128  # rows of each part of a piece whose rows are reduced side by side,
STREAM_PIECES = 64  # or so few that there are this many pieces
STREAM_COLUMNS = 2048  # numbers that are kept in the first cache, for all columns whose sums are made row by row
SHORT_ROW_BYTES = 128  # of a row that is read together with its neighbours
TRANSPOSED_ROWS = 64  # rows of a chunk of what is transposed
SORT_GRAIN = 4  # chunks of a merge that are worth a thread's attention
UNROLLED_CHUNK_WORK = 20_000  # operations of a chunk of straight-line code, about: enough to pay for beginning it
UNROLLED_CHUNK_STRIPS = 64  # strips of one, at most

# Products of matrices.
PRODUCT_L2_SHARE = Fraction(1, 2)  # of L2, for a block of rows, which a panel of columns and sums go past
PRODUCT_SUMS_SHARE = 1  # of L2, as large as the sums of a block: the wider it is, the less often rows are packed
PRODUCT_PADDING = 8  # elements by which packed rows are apart from a power of two, so that they do not meet in a cache
PRODUCT_PACKED_COST = 2  # multiplications: to pack an element of a column, and read it again, within the caches
PRODUCT_ACROSS_COST = 4  # multiplications: to write an element of the result across what is contiguous
PRODUCT_LONG = 4  # a ratio: an extent is long that is so many times what is wanted of it
PRODUCT_TASKS = 8  # that a product is cut into, about: by its rows, and if these are few then by its columns
PRODUCT_TASK_ROW_PANELS = 2  # panels of rows in a task, which share what is loaded of a panel of columns
PRODUCT_TASK_COLUMN_PANELS = 4  # panels of columns in a task, for which rows are packed once
GROUP_TILE_PLACES = 4  # places of a tile that a thread of a group has along either side
GROUP_TILE_STEPS = (16, 8)  # steps of the inner loop for which a group loads operands: the most that memory holds


# Order: lengths that fix the order in which numbers are combined, and so the bits of results. They and sizes say how
# many parts there are, not how many threads run.

STRIP_REGISTERS = 4  # registers of lanes in a strip, which hold one sum of a nest, at most
ROW_STRIP_REGISTERS = 2  # the same in a loop inside of others: its rows may be short, and their last strip is not full
WAITING_STRIP_REGISTERS = 8  # around a loop whose turns wait for the ones before: two operations in each of 4 cycles
WAITING_HELD = 0.75  # of the registers: what such a loop carries

# Pieces of reductions outside of all loops.
REDUCTION_PIECES = 128  # that are reduced side by side, at most, and chunks of totals of nests
PIECE_SCALARS = 32_768  # that a piece combines at least, about
PIECE_TOTALS_ROOM = 1 << 18  # scalars that the totals of pieces take, at most
PIECE_REGISTERS = 4  # registers of lanes that hold one total of a piece, at most
LOCKSTEP_CELLS = 8  # cells of all stretches of a piece that are reduced in lockstep
LOCKSTEP_STATEMENTS = 60  # in a step that is worth several copies, at most
SMALL_ELEMENT = 4096  # scalars of an element that one thread combines, at most
GROUP_SMALL_ELEMENT = 256  # the same where threads come in groups
GROUP_PIECE_SCALARS = 64  # that a piece combines at least there, about

# Totals of nests.
LANE_CHUNK = 4096  # points of a chunk of totals, at least, and iterations of any other chunk that is only lanes
TOTAL_CHUNK_UNIT = 64  # points: chunks of totals are multiples of so many
TOTAL_REGISTERS = 4  # registers of lanes that hold one total
GROUP_LANE_ELEMENTS = 4  # that a lane of a group combines at least, about
GROUP_WAVES = 4  # groups for each that runs at a time
GROUP_ROW_LENGTHS = (7, 5, 3, 1)  # elements in the row of a lane of a group: the most of these that fit

# Scans.
# Scalars of a block: its stretches in lockstep do not begin at multiples of a large power of two, whose places in a
# cache would be the same.
SCAN_BLOCK = 8 * 4168
SCAN_BLOCKS_AT_ONCE = 32  # blocks that are taken through both passes before the next ones
SCAN_LOCKSTEP_WORTH = 2048  # twice so many elements are worth two passes on one thread, with stretches in lockstep
GROUP_SCAN_THREADS = 256  # threads that have a block of arrays each, where threads come in groups

# Pairwise summation.
PAIRWISE_BLOCK = 16  # elements or partial sums that are added one by one
PAIRWISE_LEVELS = 4  # of blocks of blocks; on the last one there are as many as are left
PAIRWISE_THREAD_BLOCK = 64  # the same where a thread of a group adds what is its own
PAIRWISE_THREAD_LEVELS = 2

# Accumulators and histograms.
ACCUMULATOR_COPIES = 8  # copies of an accumulator that threads add to side by side, and pieces of a histogram
SMALL_ACCUMULATORS = 256  # scalars of a nest's accumulators together, at most, or one for ACCUMULATOR_COPIES iterations
GROUP_SMALL_ACCUMULATORS = 256  # the same where threads come in groups: updates of one place would wait for each other
GROUP_COPIES_ROOM = 1 << 22  # scalars that the copies of accumulators have there, at most
BIN_ELEMENTS = 4  # elements of a piece for each bin, at least
HISTOGRAM_STRIP = 64  # elements that are computed in lanes before they are combined
HISTOGRAM_LANES_WORK = 4  # of an element, from which it is: it is stored and read again, within the first cache
GROUP_HISTOGRAM_PIECES = 1024  # pieces where threads come in groups, at most
GROUP_HISTOGRAM_ENOUGH_PIECES = 64  # pieces there that are worth it
GROUP_HISTOGRAM_ROOM = 1 << 22  # scalars that the bins of pieces have there, at most
GROUP_HISTOGRAM_FEW_ELEMENTS = 256  # that are not worth sorting there

# Sorting.
SORT_RUN = 16  # elements that are sorted by insertion
SORT_CHUNK = 4096  # elements of a chunk: keys and places, twice, stay in the cache of a core
GROUP_SORT_MERGED = 32  # elements that a thread of a group merges: a multiple of those of a run

# Products of matrices: these decide how many steps are summed before their sum is added.
PRODUCT_TILE_REGISTERS = 2  # registers of a row of a tile
PRODUCT_TILE_ROWS = 8  # rows of a tile, at most: as many as registers hold
PRODUCT_L1_SHARE = Fraction(2, 3)  # of L1, for a panel of a block of steps


# Budgets: of code and the time to compile it, of memory, of how far a pass looks, and what it takes for unknown sizes.

# Code, in statements, bindings or operations.
UNFOLDED = 500  # lines of LLVM IR of a procedure that has calls of itself in their places,
UNFOLDED_TOGETHER = 12000  # and two or three times as many if all procedures of a program have no more together
LOOP_FUSION_STATEMENTS = 1000  # of two loops together that are joined
TILED_FUSION_STATEMENTS = 1000  # of a loop over chunks; in a longer one no more sums are made
SPLIT_STATEMENTS = 500  # of a loop's body that is written twice, for the inside and for borders,
SPLIT_GAIN = 0.1  # and only if this part of its cost is saved inside
SPLIT_INDEX_PARTS = 24  # of an index that is computed in loops inside of lanes, when it is written as one expression
SPLIT_LEAST_STRIPS = 4  # of lanes in a constant divisor, so that most strips hold no multiple of it
FUSION_BINDINGS = 160  # of fused nests together: more values do not fit into the registers
WIDE_STRIP_BINDINGS = 24  # of a body that runs on several registers at a time
LONG_STRIP_BINDINGS = 200  # of one that does where it holds few values at a time: random numbers have 130
LONG_STRIP_READ = 8  # a ratio: and where it has so many bindings for each element that it reads
GROUP_TILE_STATEMENTS = 40  # around a sum, worth repeating for each place of a thread
PREFETCH_STATEMENTS = 24  # of a loop that prefetches
PREFETCH_INDEX_PARTS = 8  # operations by which an index is computed, for each load
UNROLLED_ITERATIONS = 32  # of a loop that is unrolled in full
UNROLLED_INSTRUCTIONS = 4000  # of straight-line code along lanes: LLVM takes 2 s for them, 10 s for three times as many
UNROLLED_STATEMENTS = 6000  # that a body may become by it, before those without use are left out,
UNROLLING_STEPS = 30_000  # and that may be run to find them
BOUNDS_CHECK_COMPARISONS = 8  # before a loop that are worth it

# Memory.
# Elements that are stored where a loop is distributed, at most: no memory holds more, or their axes are so many that
# each is short, and its loop is all beginning and end.
MOST_STORED = 1 << 31

# How far a pass looks.
FUSION_LOOKAHEAD = 12  # nests that one moves past, to the one that it is fused with: more are looked at in vain
LOOP_FUSION_LOOKAHEAD = 2  # loops that one moves down past, to the one that it is joined with
DISTRIBUTION_ROUNDS = 12  # of distributing and simplifying
OPERAND_DEPTH = 64  # operations that an operand is looked into, one inside the other
COMMUTATIVITY_CASES = 500  # that are tried
MATERIALISED_PART = 100  # a reduction counts if it is this part of the program's largest; a size not known is 1000
FARTHEST_BORDER = 1 << 40  # lanes: no distance that a program writes is as long
LARGEST_MULTIPLE = 1 << 20  # multiples of a loop variable by no more, and not by 0, are all different: none wraps
NEUTRAL_ROUNDING = 16  # units of the last place by which an operator may move what a neutral element is combined with

# Sizes that are not known.
UNKNOWN_TURNS = 8.0  # iterations of a loop in an estimate, where data decides them
UNKNOWN_SHARE = 0.5  # of a branch there
LEAST_AXIS = 16  # what each axis of what is stored counts as, at least: a loop takes about as long as for one element
UPDATES_UNKNOWN_ITERATIONS = 64  # of a loop of unknown extent, where updates are shared
SURVEY_UNKNOWN_ITERATIONS = 8.0  # of one whose work is estimated, in comparisons
SURVEY_MOST_ITERATIONS = 64.0  # and of a loop of known extent, at most
SURVEY_MOST_WORK = 2.0**40  # estimates end here: those of deep nests are no integers of 64 bits
