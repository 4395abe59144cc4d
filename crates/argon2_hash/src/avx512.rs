//! Argon2 with the vectors of AVX-512.
//!
//! Owns: the computation in memory of the caller, on processors with AVX-512. Does not own: the choice
//! between this and the library, and erasing the memory (the crate's [`Job::hash`]).
//!
//! A block has 1 KiB: sixteen vectors of AVX-512, which stay in registers while a block is computed.
//! With AVX2 they do not fit, and a rotation takes several instructions. Decision 0084 has figures.
//!
//! The unsafe part: calling functions that need a feature of the processor, after it was detected, and
//! moving vectors between registers and arrays of their size.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_alignr_epi8, _mm512_loadu_epi64, _mm512_mul_epu32,
    _mm512_permutex_epi64, _mm512_ror_epi64, _mm512_shuffle_i64x2, _mm512_storeu_epi64, _mm512_xor_si512,
};

use argon2::{Algorithm, Block, MIN_SALT_LEN, Params, Version};
use blake2::digest::Output;
use blake2::digest::block_api::{UpdateCore as _, VariableOutputCore as _};
use blake2::digest::block_buffer::LazyBuffer;
use blake2::{Blake2b512, Blake2bVarCore, Digest as _};
use zeroize::{Zeroize as _, Zeroizing};

use super::Job;

/// Computes a hash into `digest`, in at least as many blocks as the parameters need. `false`: this
/// processor does not have the instructions, or the library refuses such a job. Nothing was computed.
pub(super) fn hash(job: &Job<'_>, digest: &mut [u8], blocks: &mut [Block]) -> bool {
    let is_supported = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    let Some(blocks) = blocks.get_mut(..job.params.block_count()) else { return false };
    // What is written here is for jobs without associated data and with one length of the result.
    let is_plain = job.params.output_len() == Some(digest.len()) && job.params.data().is_empty();
    if !is_supported || !is_plain || job.salt.len() < MIN_SALT_LEN {
        return false;
    }
    let mut first = first_hash(job, digest.len());
    #[expect(unsafe_code, reason = "calls a function that needs features of the processor")]
    // SAFETY: the processor has the features, as was just detected.
    let mut last = unsafe { fill(job, &first, blocks) };
    first.zeroize();
    long_hash(&[&last], digest);
    last.zeroize();
    true
}

type Words = [u64; Block::SIZE / 8];

/// Slices of a lane (RFC 9106 §3.4).
const SLICES: usize = 4;

/// H0 (RFC 9106 §3.2), without secret and associated data.
fn first_hash(job: &Job<'_>, digest_length: usize) -> [u8; 64] {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
    let params = job.params;
    let mut hash = Blake2b512::new();
    for number in [
        params.p_cost().to_le_bytes(),
        length(digest_length),
        params.m_cost().to_le_bytes(),
        params.t_cost().to_le_bytes(),
        u32::from(job.version).to_le_bytes(),
        (job.algorithm as u32).to_le_bytes(),
    ] {
        hash.update(number);
    }
    for text in [job.password, job.salt, &[], &[]] {
        hash.update(length(text.len()));
        hash.update(text);
    }
    hash.finalize().into()
}

/// H′ (RFC 9106 §3.3): a hash of any length.
fn long_hash(inputs: &[&[u8]], mut out: &mut [u8]) {
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX).to_le_bytes();
    let inputs = || std::iter::once(&length[..]).chain(inputs.iter().copied());
    if out.len() <= 64 {
        return short_hash(inputs(), out);
    }
    let mut hash = Zeroizing::new([0; 64]);
    short_hash(inputs(), &mut hash[..]);
    loop {
        let (half, rest) = out.split_at_mut(32);
        half.copy_from_slice(&hash[..32]);
        out = rest;
        let before = hash.clone();
        if out.len() <= 64 {
            return short_hash(std::iter::once(&before[..]), out);
        }
        short_hash(std::iter::once(&before[..]), &mut hash[..]);
    }
}

/// `BLAKE2b` with a result of 1 to 64 bytes.
fn short_hash<'a>(inputs: impl Iterator<Item = &'a [u8]>, out: &mut [u8]) {
    // Fails only for another length, which no caller has.
    let Ok(mut hash) = Blake2bVarCore::new(out.len()) else { return };
    let (mut buffer, mut whole) = (LazyBuffer::default(), Output::<Blake2bVarCore>::default());
    inputs.for_each(|input| buffer.digest_blocks(input, |blocks| hash.update_blocks(blocks)));
    hash.finalize_variable_core(&mut buffer, &mut whole);
    out.copy_from_slice(&whole[..out.len()]);
    // `hash` and `buffer` erase themselves.
    whole[..].zeroize();
}

/// How the memory is divided (RFC 9106 §3.2).
#[derive(Clone, Copy)]
struct Matrix {
    lanes: usize,
    lane_length: usize,
    segment_length: usize,
}

impl Matrix {
    fn new(params: &Params) -> Self {
        let lanes = params.p_cost() as usize;
        let lane_length = params.block_count() / lanes;
        Self { lanes, lane_length, segment_length: lane_length / SLICES }
    }
}

fn words(block: &mut Block) -> &mut Words {
    let Ok(words) = block.as_mut().try_into() else { unreachable!("a block has 1 KiB") };
    words
}

/// Where a segment is: all of its blocks are computed one after the other.
#[derive(Clone, Copy)]
struct Segment {
    pass: u32,
    slice: usize,
    lane: usize,
}

/// Fills the memory, and returns the last column's sum (RFC 9106 §3.2, steps 3 to 7).
#[target_feature(enable = "avx512f,avx512bw")]
fn fill(job: &Job<'_>, first: &[u8; 64], blocks: &mut [Block]) -> [u8; Block::SIZE] {
    let Matrix { lanes, lane_length, .. } = Matrix::new(job.params);
    let mut bytes = [0; Block::SIZE];
    for (lane, blocks) in (0_u32..).zip(blocks.chunks_exact_mut(lane_length)) {
        for (column, block) in (0_u32..).zip(&mut blocks[..2]) {
            long_hash(&[first, &column.to_le_bytes(), &lane.to_le_bytes()], &mut bytes);
            for (word, bytes) in words(block).iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
    }
    for pass in 0..job.params.t_cost() {
        for slice in 0..SLICES {
            for lane in 0..lanes {
                fill_segment(job, Segment { pass, slice, lane }, blocks);
            }
        }
    }
    let mut sum = [0; Block::SIZE / 8];
    for last in blocks.chunks_exact_mut(lane_length).filter_map(|lane| lane.last_mut()) {
        sum.iter_mut().zip(words(last)).for_each(|(sum, word)| *sum ^= *word);
    }
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&sum) {
        *bytes = word.to_le_bytes();
    }
    sum.zeroize();
    bytes
}

#[target_feature(enable = "avx512f,avx512bw")]
fn fill_segment(job: &Job<'_>, segment: Segment, blocks: &mut [Block]) {
    let Segment { pass, slice, lane } = segment;
    let Matrix { lanes, lane_length, segment_length: length } = Matrix::new(job.params);
    let mut addresses = addresses_of(job, segment, blocks.len());
    // The version 0x10 overwrites blocks.
    let adds = pass > 0 && job.version == Version::V0x13;
    let begin = if pass == 0 && slice == 0 { 2 } else { 0 };
    for index in begin..length {
        let column = slice * length + index;
        let (current, previous) =
            (lane * lane_length + column, lane * lane_length + (column + lane_length - 1) % lane_length);
        let random = match &mut addresses {
            Some(addresses) => addresses.at(index),
            None => words(&mut blocks[previous])[0],
        };
        let reference_lane = if pass == 0 && slice == 0 { lane } else { (random >> 32) as usize % lanes };
        // How many blocks may be referenced (RFC 9106 §3.4.1.3): all that are done but the last one.
        let done = if pass == 0 { slice * length } else { lane_length - length };
        let area = if reference_lane == lane { done + index - 1 } else { done - usize::from(index == 0) };
        let low = random & 0xffff_ffff;
        let distance = ((area as u64 * ((low * low) >> 32)) >> 32) as usize;
        let start = if pass == 0 || slice == SLICES - 1 { 0 } else { (slice + 1) * length };
        let reference = reference_lane * lane_length + (start + area - 1 - distance) % lane_length;
        let Ok([current, previous, reference]) = blocks.get_disjoint_mut([current, previous, reference])
        else {
            unreachable!("a block references neither itself nor the one before it")
        };
        compress(words(previous), words(reference), words(current), adds);
    }
}

/// Addresses that do not depend on the password (RFC 9106 §3.4.1.2).
struct Addresses {
    input: Words,
    block: Words,
}

/// Addresses for a segment; `None` where the memory itself says them.
fn addresses_of(job: &Job<'_>, segment: Segment, blocks: usize) -> Option<Addresses> {
    let Segment { pass, slice, lane } = segment;
    let independent = match job.algorithm {
        Algorithm::Argon2d => false,
        Algorithm::Argon2i => true,
        Algorithm::Argon2id => pass == 0 && slice < SLICES / 2,
    };
    let mut input = [0; Block::SIZE / 8];
    let passes = job.params.t_cost().into();
    let numbers = [pass.into(), lane as u64, slice as u64, blocks as u64, passes, job.algorithm as u64];
    input[..numbers.len()].copy_from_slice(&numbers);
    independent.then_some(Addresses { input, block: [0; Block::SIZE / 8] })
}

impl Addresses {
    #[target_feature(enable = "avx512f,avx512bw")]
    fn at(&mut self, index: usize) -> u64 {
        let count = self.block.len();
        let number = (index / count + 1) as u64;
        if self.input[6] != number {
            self.input[6] = number;
            let (zero, mut middle) = ([0; Block::SIZE / 8], [0; Block::SIZE / 8]);
            compress(&zero, &self.input, &mut middle, false);
            compress(&zero, &middle, &mut self.block, false);
        }
        self.block[index % count]
    }
}

/// G (RFC 9106 §3.5): the compression of two blocks, written to `to` or added to it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn compress(one: &Words, other: &Words, to: &mut Words, adds: bool) {
    let (one, other, to) = (one.as_chunks().0, other.as_chunks().0, to.as_chunks_mut().0);
    let mut block: [__m512i; 16] = std::array::from_fn(|at| {
        let sum = _mm512_xor_si512(load(&one[at]), load(&other[at]));
        let kept = if adds { _mm512_xor_si512(sum, load(&to[at])) } else { sum };
        store(&mut to[at], kept);
        sum
    });
    for pair in block.as_chunks_mut().0 {
        permute_rows(pair);
    }
    for half in 0..2 {
        let columns = permute_columns(std::array::from_fn(|row| block[2 * row + half]));
        for (row, vector) in columns.into_iter().enumerate() {
            block[2 * row + half] = vector;
        }
    }
    for (to, vector) in to.iter_mut().zip(block) {
        let sum = _mm512_xor_si512(vector, load(to));
        store(to, sum);
    }
}

/// P on two rows of sixteen words each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn permute_rows(rows: &mut [__m512i; 4]) {
    const LOW: i32 = 0x44;
    const HIGH: i32 = 0xee;
    const BY_ONE: i32 = 0b00_11_10_01;
    const BY_TWO: i32 = 0b01_00_11_10;
    const BY_THREE: i32 = 0b10_01_00_11;
    let [first_low, first_high, second_low, second_high] = *rows;
    // Each of the four vectors has four words of either row.
    let [a, b, c, d] = mix([
        _mm512_shuffle_i64x2::<LOW>(first_low, second_low),
        _mm512_shuffle_i64x2::<HIGH>(first_low, second_low),
        _mm512_shuffle_i64x2::<LOW>(first_high, second_high),
        _mm512_shuffle_i64x2::<HIGH>(first_high, second_high),
    ]);
    // Diagonals become columns, and columns again.
    let [a, b, c, d] = mix([
        a,
        _mm512_permutex_epi64::<BY_ONE>(b),
        _mm512_permutex_epi64::<BY_TWO>(c),
        _mm512_permutex_epi64::<BY_THREE>(d),
    ]);
    let (b, c, d) = (
        _mm512_permutex_epi64::<BY_THREE>(b),
        _mm512_permutex_epi64::<BY_TWO>(c),
        _mm512_permutex_epi64::<BY_ONE>(d),
    );
    *rows = [
        _mm512_shuffle_i64x2::<LOW>(a, b),
        _mm512_shuffle_i64x2::<LOW>(c, d),
        _mm512_shuffle_i64x2::<HIGH>(a, b),
        _mm512_shuffle_i64x2::<HIGH>(c, d),
    ];
}

/// P on four columns: each vector has two words of each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn permute_columns([a0, a1, b0, b1, c0, c1, d0, d1]: [__m512i; 8]) -> [__m512i; 8] {
    let [a0, b0, c0, d0] = mix([a0, b0, c0, d0]);
    let [a1, b1, c1, d1] = mix([a1, b1, c1, d1]);
    let diagonal_b = [_mm512_alignr_epi8::<8>(b1, b0), _mm512_alignr_epi8::<8>(b0, b1)];
    let diagonal_d = [_mm512_alignr_epi8::<8>(d0, d1), _mm512_alignr_epi8::<8>(d1, d0)];
    let [a0, b0, c1, d0] = mix([a0, diagonal_b[0], c1, diagonal_d[0]]);
    let [a1, b1, c0, d1] = mix([a1, diagonal_b[1], c0, diagonal_d[1]]);
    let column_b = [_mm512_alignr_epi8::<8>(b0, b1), _mm512_alignr_epi8::<8>(b1, b0)];
    let column_d = [_mm512_alignr_epi8::<8>(d1, d0), _mm512_alignr_epi8::<8>(d0, d1)];
    [a0, a1, column_b[0], column_b[1], c0, c1, column_d[0], column_d[1]]
}

/// GB (RFC 9106 §3.6), eight at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn mix([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let a = multiply_add(a, b);
    let d = _mm512_ror_epi64::<32>(_mm512_xor_si512(d, a));
    let c = multiply_add(c, d);
    let b = _mm512_ror_epi64::<24>(_mm512_xor_si512(b, c));
    let a = multiply_add(a, b);
    let d = _mm512_ror_epi64::<16>(_mm512_xor_si512(d, a));
    let c = multiply_add(c, d);
    let b = _mm512_ror_epi64::<63>(_mm512_xor_si512(b, c));
    [a, b, c, d]
}

/// x + y + 2 · lower half of x · lower half of y.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn multiply_add(x: __m512i, y: __m512i) -> __m512i {
    let product = _mm512_mul_epu32(x, y);
    _mm512_add_epi64(_mm512_add_epi64(x, y), _mm512_add_epi64(product, product))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[expect(unsafe_code, reason = "there is no safe load of a vector")]
fn load(from: &[u64; 8]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array, at any alignment.
    unsafe { _mm512_loadu_epi64(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[expect(unsafe_code, reason = "there is no safe store of a vector")]
fn store(to: &mut [u64; 8], vector: __m512i) {
    // SAFETY: writes the 64 bytes of the array, at any alignment.
    unsafe { _mm512_storeu_epi64(to.as_mut_ptr().cast(), vector) }
}
